"""From a form to an answer in a browser: tiny-llama is quantized, compared and deployed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.pipeline.records import load_record, put_bench
from tests.conftest import need
from tests.live.api_server import api_server
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
    return tmp_path / "packager"


@pytest.fixture
def address(engine: str, serving_base: str, tmp_path: Path) -> Iterator[str]:
    """Pages of a real server that quantizes, builds and serves with a real engine."""
    import docker

    words = ("--ui", "--instance", "local", "--base", serving_base)
    images = ("--images", "docker:packager-test-ui")
    cache = {"PACKAGER_CACHE": str(tmp_path / "artifacts")}
    with api_server(tmp_path, *words, *images, **cache) as api:
        yield f"{api.url}/ui"
    client = docker.DockerClient(base_url=engine)
    for image in client.images.list("packager-test-ui"):
        client.images.remove(image.id, force=True)


def test_a_model_goes_from_a_form_to_an_answer(browser: Browser, address: str, state: Path) -> None:
    from selenium.webdriver.support.ui import Select

    driver = browser.driver
    browser.look(width=1280)
    driver.get(f"{address}/jobs/new")
    fill(browser, model=str(TINY), name="tiny")
    Select(browser.find("#quantize")).select_by_value("fp8")
    browser.find("[value=plan]").click()
    browser.wait_for(lambda: "tiny-llama fits on" in browser.find("#plan").text)

    browser.find("[value=create]").click()
    browser.wait_for(lambda: re.match("tiny: (queued|running)", driver.title))
    browser.wait_for(lambda: driver.title.startswith("tiny: completed"), seconds=600)
    assert "packager-test-ui:tiny" in browser.find("#main").text
    [place] = (state / "records").glob("*.json")
    assert [one.name for one in load_record(place).steps] == ["quantize"]

    driver.find_element("link text", "Lineage").click()
    driver.get(f"{address}/lineage?ref=tiny")
    browser.wait_for(lambda: browser.find_all(".drawing svg"))
    assert "command job tiny" in browser.find("#main").text

    compare(browser, address, state)

    driver.get(f"{address}/jobs/command/tiny")
    driver.find_element("link text", "Deploy").click()
    browser.wait_for(lambda: browser.find("#image").get_attribute("value"))
    browser.find("button.main").click()
    browser.wait_for(lambda: driver.title.startswith("tiny: InService"), seconds=600)
    browser.find("#prompt").send_keys("Once upon a time")
    browser.find("button.main").click()
    browser.wait_for(lambda: browser.find(".answer").text != "", seconds=120)

    browser.find("details.ask summary").click()
    browser.find("button.danger").click()
    browser.wait_for(lambda: driver.title.startswith("Endpoints"))

    def is_gone() -> bool:
        driver.get(f"{address}/endpoints")
        return "There is no endpoint." in browser.find("#main").text

    browser.wait_for(is_gone)


def compare(browser: Browser, address: str, state: Path) -> None:
    """Measure the image and another one, and look at both side by side."""
    driver = browser.driver
    [place] = (state / "records").glob("*.json")
    put_bench(place, REPORTS["quantized"]())
    other = load_record(place).model_copy(update={"digest": f"sha256:{'0' * 64}"})
    (place.parent / f"{'0' * 64}.json").write_text(other.model_dump_json())

    driver.get(f"{address}/benchmarks")
    chosen = browser.find_all("[name=of]")
    assert len(chosen) == 2
    for one in chosen:
        one.click()
    browser.find("button.main").click()
    browser.wait_for(lambda: "measured" in driver.title)

    assert browser.faults() == []
    assert browser.find_all("svg.chart") != []


def fill(browser: Browser, **fields: str) -> None:
    for name, text in fields.items():
        field = browser.find(f"#{name}")
        field.clear()
        field.send_keys(text)
