"""Every form in which an engine is started is read, or the file is refused: none passes unread."""

from __future__ import annotations

import pytest

from packager.addons.check.text import NotReadable
from tests.support.cases import cases_of, read_tables
from tests.support.checked import Check, lines

cases = cases_of(__file__)
FORMS = read_tables(__file__, "launches")


@pytest.mark.parametrize("name", FORMS["found"])
def test_an_engine_is_found_in_its_line(check: Check, name: str) -> None:
    text = FORMS["found"][name]
    report = check({name: text})

    [error] = [one for one in report.remarks if one.finding.severity == "error"]
    assert "'--sed'" in error.finding.message
    assert "sed" in text.split("\n")[error.place.line - 1]
    assert not report.unread


@pytest.mark.parametrize("name", FORMS["refused"])
def test_what_starts_no_engine_that_is_read_is_refused(check: Check, name: str) -> None:
    try:
        report = check({name: FORMS["refused"][name]})
    except NotReadable:
        return
    assert report.unread == (name,)


@cases("unknown")
def test_options_that_only_the_machine_knows_are_noted(
    check: Check, text: str, noted: list[str]
) -> None:
    found = lines(check({"a.sh": text}), "note", "warning", "error")

    assert [line for line in found if not line.endswith("version-unknown")] == noted
