"""Pages of benchmarks in a real browser: whole at any width, readable by anybody."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from packager.bench.report_html import bench_html
from tests.support.bench_reports import REPORTS
from tests.support.browser import Browser

# Every part of the page is on one of these.
DIFFERENT = ("quantized", "drafts", "twelve", "partly failed", "tiny")

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500), pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Write each page once."""
    place = tmp_path_factory.mktemp("pages")

    @functools.cache
    def write(name: str) -> Path:
        page = place / f"{name.replace(' ', '-')}.html"
        text = bench_html(
            REPORTS[name](), sources=("bench.json",), command="packager report bench.json"
        )
        page.write_text(text, encoding="utf-8")
        return page

    return write


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_is_whole_at_any_width_and_on_paper(
    browser: Browser, page_of: Callable[[str], Path], name: str
) -> None:
    browser.show(page_of(name), width=1280)
    for width in (1280, 800, 400, 320):
        browser.look(width=width)
        assert (width, browser.clipped()) == (width, [])
        assert (width, browser.overlapping()) == (width, [])
    browser.look(width=703, media="print")  # A4 between its margins
    assert browser.clipped() == []
    assert browser.faults() == []


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_page_has_no_barriers_in_light_and_dark(
    browser: Browser, page_of: Callable[[str], Path], name: str
) -> None:
    browser.show(page_of(name), width=1280)
    assert browser.barriers() == []
    browser.look(width=400, dark=True)
    assert browser.barriers() == []


def test_a_page_prints_on_paper(browser: Browser, page_of: Callable[[str], Path]) -> None:
    browser.show(page_of("quantized"), dark=True)
    pdf = browser.pdf()

    assert pdf.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 12


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
    from selenium.webdriver.support.wait import WebDriverWait

    browser.show(page_of("quantized"))
    driver = browser.driver
    heads = driver.find_elements("css selector", "section[aria-labelledby=latency] thead th")
    at = next(place for place, head in enumerate(heads) if "output tokens/s" in head.text)
    button = heads[at].find_element("css selector", "button")

    def column() -> list[float]:
        rows = driver.find_elements("css selector", "section[aria-labelledby=latency] tbody tr")
        cells = [row.find_elements("xpath", "./*")[at].text for row in rows]
        return [float(cell.replace(",", "")) for cell in cells]

    def sort(order: str) -> list[float]:
        button.send_keys(Keys.ENTER)
        WebDriverWait(driver, 60).until(lambda _: heads[at].get_attribute("aria-sort") == order)
        return column()

    rising, falling = sort("ascending"), sort("descending")

    assert rising == sorted(rising)
    assert falling == sorted(rising, reverse=True)
    assert len(rising) == 18
    WebDriverWait(driver, 60).until(
        lambda found: (
            found.find_element("id", "said").get_attribute("textContent")
            == "Sorted by output tokens/s, descending"
        )
    )


def test_rows_of_all_tables_are_filtered_by_variant_and_load(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    from selenium.webdriver.support.ui import Select
    from selenium.webdriver.support.wait import WebDriverWait

    browser.show(page_of("drafts"))
    driver = browser.driver

    def shown(key: str) -> list[list[str]]:
        """Return variant and load of the rows; the table of drafts has the draft between them."""
        place = f"section[aria-labelledby={key}] tbody tr:not([hidden])"
        rows = driver.find_elements("css selector", place)
        found = [row.find_elements("xpath", "./*") for row in rows]
        load = 2 if key == "speculation" else 1
        return [[cells[0].text.strip(), cells[load].text] for cells in found]

    Select(driver.find_element("name", "variant")).select_by_visible_text("base-head")
    Select(driver.find_element("name", "load")).select_by_visible_text("4")

    tables = ("latency", "throughput", "price", "speculation", "differences")
    WebDriverWait(driver, 60).until(
        lambda _: all(shown(key) == [["base-head", "4"]] for key in tables)
    )
    driver.find_element("css selector", ".filters [type=reset]").click()
    WebDriverWait(driver, 60).until(lambda _: len(shown("latency")) == 12)


def test_a_page_without_script_has_everything_and_no_dead_button(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    with browser.without_script():
        browser.show(page_of("quantized"))
        driver = browser.driver
        controls = driver.find_elements("css selector", "button, form")
        rows = driver.find_elements("css selector", "section[aria-labelledby=latency] tbody tr")

        assert [one.tag_name for one in controls if one.is_displayed()] == []
        assert len([row for row in rows if row.is_displayed()]) == 18


def test_links_lead_to_parts_of_the_page_by_keyboard(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait

    browser.show(page_of("quantized"))
    driver = browser.driver
    link = driver.find_element("css selector", "nav a[href='#price']")
    link.send_keys(Keys.ENTER)

    where = "return document.getElementById('price').getBoundingClientRect().top"
    WebDriverWait(driver, 60).until(
        lambda _: (
            driver.current_url.endswith("#price") and -1 <= driver.execute_script(where) <= 900
        )
    )
