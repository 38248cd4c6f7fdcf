"""From a form to an answer in a browser: tiny-llama is quantized, compared and deployed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.build.records import load_record, put_bench
from tests.conftest import need
from tests.live.test_served_pages import wait_for
from tests.support.bench_reports import REPORTS
from tests.support.browser import Browser, opened
from tests.support.commandline import TINY

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]


@pytest.fixture
def browser() -> Iterator[Browser]:
    with opened(need("chromium"), need("chromedriver"), "") as started:
        yield started


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def address(docker_host: str, serving_base: str, tmp_path: Path, state: Path) -> Iterator[str]:
    """Pages of a real server that quantizes, builds and serves with a real engine."""
    import docker

    client = docker.DockerClient(base_url=docker_host)
    own = {
        "DOCKER_HOST": docker_host,
        "XDG_STATE_HOME": str(state),
        "PACKAGER_CACHE": str(tmp_path / "artifacts"),
    }
    words = ("serve", "--listen", "127.0.0.1:0", "--ui", "--instance", "local")
    places = ("--base", serving_base, "--images", "docker:packager-test-ui")
    server = subprocess.Popen(
        [sys.executable, "-m", "packager", *words, *places],
        env=os.environ | own,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        yield f"{server.stdout.readline().strip()}/ui"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        for left in client.containers.list(all=True, filters={"label": "dev.packager.endpoint"}):
            left.remove(force=True, v=True)
        for image in client.images.list("packager-test-ui"):
            client.images.remove(image.id, force=True)


def test_a_model_goes_from_a_form_to_an_answer(browser: Browser, address: str, state: Path) -> None:
    from selenium.webdriver.support.ui import Select

    driver = browser.driver
    browser.look(width=1280)
    driver.get(f"{address}/jobs/new")
    fill(driver, model=str(TINY), name="tiny")
    Select(driver.find_element("id", "quantize")).select_by_value("fp8")
    driver.find_element("css selector", "[value=plan]").click()
    wait_for(driver, lambda: "tiny-llama fits on" in driver.find_element("id", "plan").text)

    driver.find_element("css selector", "[value=create]").click()
    wait_for(driver, lambda: re.match("tiny: (queued|running)", driver.title))
    wait_for(driver, lambda: driver.title.startswith("tiny: completed"), seconds=600)
    assert "packager-test-ui:tiny" in driver.find_element("id", "main").text
    [place] = (state / "packager" / "records").glob("*.json")
    assert [one.name for one in load_record(place).steps] == ["quantize"]

    driver.find_element("link text", "Lineage").click()
    driver.get(f"{address}/lineage?ref=tiny")
    wait_for(driver, lambda: driver.find_elements("css selector", ".drawing svg"))
    assert "command job tiny" in driver.find_element("id", "main").text

    compare(browser, address, state)

    driver.get(f"{address}/jobs/command/tiny")
    driver.find_element("link text", "Deploy").click()
    wait_for(driver, lambda: driver.find_element("id", "image").get_attribute("value"))
    driver.find_element("css selector", "button.main").click()
    wait_for(driver, lambda: driver.title.startswith("tiny: InService"), seconds=600)
    driver.find_element("id", "prompt").send_keys("Once upon a time")
    driver.find_element("css selector", "button.main").click()
    wait_for(driver, lambda: driver.find_element("css selector", ".answer").text != "", seconds=120)

    driver.find_element("css selector", "details.ask summary").click()
    driver.find_element("css selector", "button.danger").click()
    wait_for(driver, lambda: driver.title.startswith("Endpoints"))

    def is_gone() -> bool:
        driver.get(f"{address}/endpoints")
        return "There is no endpoint." in driver.find_element("id", "main").text

    wait_for(driver, is_gone)


def compare(browser: Browser, address: str, state: Path) -> None:
    """Measure the image and another one, and look at both side by side."""
    driver = browser.driver
    [place] = (state / "packager" / "records").glob("*.json")
    put_bench(place, REPORTS["quantized"]())
    other = load_record(place).model_copy(update={"digest": f"sha256:{'0' * 64}"})
    (place.parent / f"{'0' * 64}.json").write_text(other.model_dump_json())

    driver.get(f"{address}/benchmarks")
    chosen = driver.find_elements("css selector", "[name=of]")
    assert len(chosen) == 2
    for one in chosen:
        one.click()
    driver.find_element("css selector", "button.main").click()
    wait_for(driver, lambda: "measured" in driver.title)

    assert browser.faults() == []
    assert driver.find_elements("css selector", "svg.chart") != []


def fill(driver: Any, **fields: str) -> None:
    for name, text in fields.items():
        field = driver.find_element("id", name)
        field.clear()
        field.send_keys(text)
