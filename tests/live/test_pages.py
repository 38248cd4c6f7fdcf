"""Pages of plans and rankings in a real browser: whole at any width, readable by anybody."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from packager.catalog.instances import find_instance, instances
from tests.support.browser import Browser, written_once
from tests.support.pages import plan_page, ranking_page
from tests.support.report_values import quality_report

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500), pytest.mark.xdist_group("browser")]

SEVERAL = ("ml.g5.xlarge", "ml.g6e.12xlarge", "ml.p5.48xlarge", "ml.p5en.48xlarge", "ml.p3.2xlarge")

PAGES: Mapping[str, Callable[[], str]] = {
    "dense on one GPU": lambda: plan_page("dense", "ml.g5.xlarge"),
    "dense on eight GPUs": lambda: plan_page("dense", "ml.p5.48xlarge"),
    "dense, quantized": lambda: plan_page(
        "dense", "ml.g6e.xlarge", quantize="awq", goal="latency", quality=quality_report()
    ),
    "dense, refused here": lambda: plan_page("dense", "local"),
    "fused on one GPU": lambda: plan_page("fused", "ml.g5.xlarge"),
    "experts, refused": lambda: plan_page("experts", "ml.g5.xlarge"),
    "experts on eight GPUs": lambda: plan_page("experts", "ml.p5.48xlarge"),
    "MLA on eight GPUs": lambda: plan_page("mla", "ml.p5en.48xlarge"),
    "hybrid on eight GPUs": lambda: plan_page("hybrid", "ml.p5.48xlarge", draft="mtp"),
    "tiny, here": lambda: plan_page("tiny", "local"),
    "tiny on Neuron": lambda: plan_page("tiny", "ml.inf2.xlarge"),
    "ranking": lambda: ranking_page("dense", instances()),
    "ranking of large experts": lambda: ranking_page("mla", map(find_instance, SEVERAL)),
}
RANKING = "ranking"


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return written_once(tmp_path_factory.mktemp("pages"), lambda name: PAGES[name]())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_at_any_width_and_on_paper_and_has_no_barriers(
    browser: Browser, page_of: Callable[[str], Path], name: str
) -> None:
    browser.show(page_of(name), width=1280)
    browser.check_whole()
    browser.check_barriers()
    assert browser.faults() == []


def test_nothing_is_hidden_in_the_table_at_the_usual_width(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    browser.show(page_of(RANKING), width=1280)
    widths = browser.driver.execute_script(
        "const table = document.querySelector('section[aria-labelledby=instances] .scroll');"
        "return [table.scrollWidth, table.clientWidth]"
    )

    assert widths[0] <= widths[1]


def test_a_page_prints_on_paper(browser: Browser, page_of: Callable[[str], Path]) -> None:
    browser.check_printed(page_of(RANKING), 2, 8)


def test_a_command_is_copied_with_the_keyboard_and_announced(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(page_of("dense on one GPU"))
    driver = browser.driver
    driver.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]},
    )
    button = browser.find(".copy")
    command = browser.find(".choice code").text
    driver.execute_script("document.body.tabIndex = -1; document.body.focus()")
    for _ in range(3):  # it is the first thing that Tab reaches
        driver.switch_to.active_element.send_keys(Keys.TAB)
        if driver.switch_to.active_element == button:
            break
    assert driver.switch_to.active_element == button

    button.send_keys(Keys.ENTER)

    browser.wait_for_text("said", "Command copied")
    assert driver.execute_async_script(
        "navigator.clipboard.readText().then(arguments[0], arguments[0])"
    ) == re.sub(r"\s+", " ", command)


def test_a_table_is_sorted_and_filtered(browser: Browser, page_of: Callable[[str], Path]) -> None:
    browser.show(page_of(RANKING))
    driver = browser.driver

    def column(at: int) -> list[str]:
        rows = browser.find_all("section[aria-labelledby=instances] tbody tr:not([hidden])")
        cells = [row.find_elements("xpath", "./*") for row in rows[:12]]
        return [row[at].text for row in cells]

    head = browser.find("[data-is=hour] button")
    head.click()
    cheapest = [float(text) for text in column(3)]
    head.click()
    dearest = [float(text) for text in column(3)]
    assert cheapest == sorted(cheapest)
    assert dearest == sorted(dearest, reverse=True)
    assert dearest[0] > 100 > cheapest[-1]
    sorts = browser.find_all("th[aria-sort]")
    assert [one.get_attribute("aria-sort") for one in sorts] == ["descending"]

    browser.choose("device", "L4")
    browser.choose("fits", "fits")
    driver.find_element("name", "hour").send_keys("2")
    shown = browser.find(".filters output").text
    assert set(column(2)) == {"1 x L4"}
    assert all(float(text) <= 2 for text in column(3))
    assert re.fullmatch(r"[3-9] of 167 rows", shown)


def test_a_page_without_script_has_everything_and_no_dead_button(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    assert (
        len(
            browser.shown_without_script(
                page_of(RANKING), "section[aria-labelledby=instances] tbody tr"
            )
        )
        == 167
    )
    assert browser.find(".choice code").is_displayed()
