"""Pages of benchmarks in a real browser: whole at any width, readable by anybody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.bench_reports import REPORTS
from tests.support.browser import Browser, written_once
from tests.support.report_values import bench_html

# Every part of the page is on one of these.
DIFFERENT = ("quantized", "drafts", "twelve", "partly failed", "tiny")

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500), pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def render(name: str) -> str:
        return bench_html(
            REPORTS[name](), sources=("bench.json",), command="packager report bench.json"
        )

    return written_once(tmp_path_factory.mktemp("pages"), render)


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_is_whole_at_any_width_and_on_paper_and_has_no_barriers(
    browser: Browser, page_of: Callable[[str], Path], name: str
) -> None:
    browser.show(page_of(name), width=1280)
    browser.check_whole()
    if name in DIFFERENT:
        browser.check_barriers()
    assert browser.faults() == []


def test_a_page_prints_on_paper(browser: Browser, page_of: Callable[[str], Path]) -> None:
    browser.check_printed(page_of("quantized"), 3, 12)


def test_every_table_is_whole_at_the_usual_width(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    browser.show(page_of("quantized"), width=1280)
    wider = browser.driver.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter("
        "(one) => one.scrollWidth > one.clientWidth).length"
    )

    assert wider == 0


def test_a_table_is_sorted_by_numbers_and_announced(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(page_of("quantized"))
    heads = browser.find_all("section[aria-labelledby=latency] thead th")
    at = next(place for place, head in enumerate(heads) if "output tokens/s" in head.text)
    button = heads[at].find_element("css selector", "button")

    def column() -> list[float]:
        rows = browser.find_all("section[aria-labelledby=latency] tbody tr")
        cells = [row.find_elements("xpath", "./*")[at].text for row in rows]
        return [float(cell.replace(",", "")) for cell in cells]

    def sort(order: str) -> list[float]:
        button.send_keys(Keys.ENTER)
        browser.wait_for(lambda: heads[at].get_attribute("aria-sort") == order)
        return column()

    rising, falling = sort("ascending"), sort("descending")

    assert rising == sorted(rising)
    assert falling == sorted(rising, reverse=True)
    assert len(rising) == 18
    browser.wait_for_text("said", "Sorted by output tokens/s, descending")


def test_rows_of_all_tables_are_filtered_by_variant_and_load(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    browser.show(page_of("drafts"))

    def shown(key: str) -> list[list[str]]:
        """Return variant and load of the rows; the table of drafts has the draft between them."""
        place = f"section[aria-labelledby={key}] tbody tr:not([hidden])"
        rows = browser.find_all(place)
        found = [row.find_elements("xpath", "./*") for row in rows]
        load = 2 if key == "speculation" else 1
        return [[cells[0].text.strip(), cells[load].text] for cells in found]

    browser.choose("variant", "base-head")
    browser.choose("load", "4")

    tables = ("latency", "throughput", "price", "speculation", "differences")
    browser.wait_for(lambda: all(shown(key) == [["base-head", "4"]] for key in tables))
    browser.find(".filters [type=reset]").click()
    browser.wait_for(lambda: len(shown("latency")) == 12)


def test_a_page_without_script_has_everything_and_no_dead_button(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    rows = "section[aria-labelledby=latency] tbody tr"
    assert browser.shown_without_script(page_of("quantized"), rows) == [True] * 18


def test_links_lead_to_parts_of_the_page_by_keyboard(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(page_of("quantized"))
    driver = browser.driver
    link = browser.find("nav a[href='#price']")
    link.send_keys(Keys.ENTER)

    where = "return document.getElementById('price').getBoundingClientRect().top"
    browser.wait_for(lambda: driver.current_url.endswith("#price"))
    browser.wait_for(lambda: -1 <= driver.execute_script(where) <= 900)
