"""Pages of the server in a real browser: whole at any width, by keyboard, without script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.addons.server.services import ServeServices
from tests.support.browser import Browser
from tests.support.cases import read_tables
from tests.support.made_up_jobs import MadeUpJobs, fifty_jobs, new_job
from tests.support.served_pages import MadeUpApi, pages_app, served, services_at

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500), pytest.mark.xdist_group("browser")]

WORD = "W" * 63
CORPUS = read_tables(__file__)
ENDPOINT = CORPUS["endpoint"] | {"FailureReason": None}


@pytest.fixture
def jobs(tmp_path: Path) -> MadeUpJobs:
    jobs = fifty_jobs(tmp_path / "jobs")
    long = jobs.create(new_job(WORD, document={"model": "s3://" + 300 * "m"}))
    jobs.change(long, status="failed", failure=400 * "x").log.write_text(2000 * "y" + "\n")
    return jobs


@pytest.fixture
def services(tmp_path: Path, jobs: MadeUpJobs, monkeypatch: pytest.MonkeyPatch) -> ServeServices:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return services_at(tmp_path, jobs)


@pytest.fixture
def address(services: ServeServices, browser: Browser) -> Iterator[str]:
    api = MadeUpApi({"DescribeEndpoint": ENDPOINT, "ListEndpoints": {"Endpoints": [ENDPOINT]}})
    with served(lambda: pages_app(services, api)) as address:
        browser.faults()
        yield f"{address}/ui"
        browser.driver.get("about:blank")  # nobody listens when the server ends


@pytest.mark.parametrize("page", CORPUS["pages"])
def test_a_page_is_whole_at_any_width_and_has_no_barriers(
    browser: Browser, address: str, page: str
) -> None:
    browser.look(width=1280)
    browser.driver.get(f"{address}/{page.replace('LONG', WORD)}")
    browser.check_whole()
    browser.check_barriers()
    assert [fault for fault in browser.faults() if "the server responded with" not in fault] == []


def test_a_job_is_watched_while_it_runs_and_ends(
    browser: Browser, address: str, jobs: MadeUpJobs
) -> None:
    job = jobs.get("optimization", "llama-01")
    driver = browser.driver
    browser.look(width=1280)
    driver.get(f"{address}/jobs/optimization/llama-01")
    browser.wait_for_text("log", "train: read 12 texts")
    with job.log.open("a") as file:
        file.write("build: <b>layer</b> 1 of 5\n")

    browser.wait_for_text("log", "build: <b>layer</b> 1 of 5")
    jobs.change(job, status="failed", failure="no space left on '/scratch'")
    browser.wait_for(lambda: driver.title.startswith("llama-01: failed"))

    assert "no space left on '/scratch'" in browser.find("#now").text
    assert "Delete the job" in browser.find("#main").text
    assert browser.faults() == []


def test_nobody_is_taken_away_from_what_they_do_when_a_job_ends(
    browser: Browser, address: str, jobs: MadeUpJobs
) -> None:
    driver = browser.driver
    browser.look(width=1280)
    driver.get(f"{address}/jobs/optimization/llama-01")
    driver.execute_script("document.getElementById('log').focus()")
    jobs.change(jobs.get("optimization", "llama-01"), status="stopped")

    browser.wait_for_text("now", "Show the result")

    assert driver.switch_to.active_element.get_attribute("id") == "log"
    said = browser.find("#said").get_attribute("textContent")
    assert said == "llama-01: stopped"


def test_the_list_changes_while_somebody_looks(
    browser: Browser, address: str, jobs: MadeUpJobs
) -> None:
    driver = browser.driver
    browser.look(width=1280)
    driver.get(f"{address}/jobs?status=running")
    row = browser.find("[data-job='optimization/llama-06']")
    assert "50 s left" in row.text

    jobs.change(jobs.get("optimization", "llama-06"), status="completed")

    browser.wait_for(lambda: "completed" in row.text)
    assert not row.find_element("css selector", "progress").is_displayed()


def test_a_form_shows_what_belongs_to_the_choices(browser: Browser, address: str) -> None:
    driver = browser.driver
    browser.look(width=1280)
    driver.get(f"{address}/jobs/new")

    def shown() -> set[str]:
        names = ("calibration", "draft_ref", "data")
        return {name for name in names if browser.find(f"#{name}").is_displayed()}

    assert shown() == set()
    browser.find("[name=draft][value=train]").click()
    assert shown() == {"data"}
    browser.find("[name=draft][value=own]").click()
    browser.find("#quantize [value=awq]").click()
    assert shown() == {"draft_ref", "calibration"}


@pytest.mark.capability("browser")
def test_a_job_is_made_and_deleted_by_keyboard_alone(
    browser: Browser, address: str, jobs: MadeUpJobs
) -> None:
    from selenium.webdriver.common.keys import Keys

    driver = browser.driver
    browser.look(width=1280)
    driver.get(f"{address}/jobs")
    browser.press("TAB")
    assert driver.switch_to.active_element.text == "Skip to the content"
    tab_to(browser, "a[href$='/jobs/new']")
    browser.press("ENTER")
    browser.wait_for(lambda: driver.title.startswith("New job"))
    tab_to(browser, "#model")
    driver.switch_to.active_element.send_keys("examples/tiny-llama")
    tab_to(browser, "[name=do][value=create]")
    browser.press("ENTER")
    browser.wait_for(lambda: driver.title.startswith("Wrong fields"))

    # What is wrong comes first, and leads to its field.
    assert driver.switch_to.active_element.get_attribute("class") == "summary"
    browser.press("TAB")
    browser.press("ENTER")
    browser.press("TAB")
    tab_to(browser, "#instance")
    driver.switch_to.active_element.send_keys("ml.g5.xlarge")
    tab_to(browser, "#name")
    driver.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    driver.switch_to.active_element.send_keys("by-keyboard")
    tab_to(browser, "#output")
    driver.switch_to.active_element.send_keys("oci:out")
    tab_to(browser, "[name=do][value=create]")
    browser.press("ENTER")
    browser.wait_for(lambda: driver.title.startswith("by-keyboard: queued"))

    jobs.change(jobs.get("command", "by-keyboard"), status="stopped")
    browser.wait_for(lambda: driver.title.startswith("by-keyboard: stopped"))
    tab_to(browser, "details.ask summary")
    browser.press("ENTER")
    tab_to(browser, "button.danger")
    browser.press("ENTER")
    browser.wait_for(lambda: driver.title.startswith("Jobs"))
    assert ("command", "by-keyboard") not in jobs.jobs


def test_focus_is_seen_wherever_it_is(browser: Browser, address: str) -> None:
    driver = browser.driver
    browser.look(width=1280)
    driver.get(f"{address}/jobs/optimization/llama-01")
    seen = set()
    for _ in range(40):
        browser.press("TAB")
        at = driver.switch_to.active_element
        if at.tag_name == "body":
            break
        seen.add(at.tag_name)
        outline = driver.execute_script(
            "const s = getComputedStyle(arguments[0]); return s.outlineStyle + s.outlineWidth", at
        )
        assert outline == "solid3px", at.get_attribute("outerHTML")
    assert {"a", "button", "pre", "summary"} <= seen


def test_without_script_everything_is_there_and_no_dead_button(
    browser: Browser, address: str
) -> None:
    driver = browser.driver
    browser.look(width=1280)
    with browser.without_script():
        driver.get(f"{address}/jobs/new")
        for name in ("calibration", "draft_ref", "data"):
            assert browser.find(f"#{name}").is_displayed()
        driver.get(f"{address}/jobs/optimization/llama-00")
        copies = browser.find_all(".copy")
        assert copies != []
        assert not any(one.is_displayed() for one in copies)
        browser.find("details.ask summary").click()
        browser.find("button.danger").click()
        browser.wait_for(lambda: driver.title.startswith("Jobs"))


def tab_to(browser: Browser, selector: str) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(120):
        at = browser.driver.switch_to.active_element
        if browser.driver.execute_script("return arguments[0].matches(arguments[1])", at, selector):
            return
        browser.press("TAB")
    raise AssertionError(f"no Tab leads to {selector}")
