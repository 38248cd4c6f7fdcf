"""The page of a lineage in a real browser: whole at any width, readable by anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.reports.page import report_html
from packager.images.lineage.index import LineageIndex
from packager.images.lineage.page import lineage_page
from packager.images.lineage.records import record_fragment
from tests.support.browser import Browser
from tests.support.lineage_records import KEY, record

pytestmark = [pytest.mark.live, pytest.mark.timeout(600), pytest.mark.xdist_group("browser")]


def test_the_page_has_no_barrier_and_nothing_is_cut_off(browser: Browser, tmp_path: Path) -> None:
    claims = [
        record_fragment(record(digest=f"sha256:{at:064x}"), claimed=at % 2 == 0) for at in range(6)
    ]
    page = tmp_path / "lineage.html"
    page.write_text(
        report_html(lineage_page(LineageIndex(None).graph([f"artifact:{KEY}"], claims)))
    )

    browser.show(page, width=1280)
    for width in (1280, 320):
        browser.look(width=width)
        assert (width, browser.clipped()) == (width, [])
    browser.check_barriers()
    assert browser.faults() == []
