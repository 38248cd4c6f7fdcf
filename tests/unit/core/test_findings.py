"""Findings carry what their messages say as data."""

from __future__ import annotations

from packager.core.findings import Finding, finding_document


def test_data_joins_the_document_only_where_there_is_some() -> None:
    plain = Finding("note", "code", "message")
    told = Finding("error", "code", "message", "hint", {"needed_bytes": 7})

    said = {"severity": "note", "code": "code", "message": "message", "hint": ""}
    assert finding_document(plain) == said
    assert finding_document(told)["data"] == {"needed_bytes": 7}


def test_findings_that_say_the_same_are_equal_and_can_be_kept_in_sets() -> None:
    assert {Finding("note", "a", "b"), Finding("note", "a", "b", data={"n": 1})} == {
        Finding("note", "a", "b")
    }
