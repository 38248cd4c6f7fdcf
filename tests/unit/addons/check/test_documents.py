"""What is found in configurations: the documents of corpus/servers.toml and corpus/files.toml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.cases import read_tables
from tests.support.checked import Check, lines, messages

EXPECTED = {
    *("lines", "codes", "errors", "all_codes", "has", "hasnt"),
    *("places", "says", "servers"),
}


def documents() -> Iterator[Any]:
    for name in ("servers", "files"):
        for group, rows in read_tables(__file__, name).items():
            for id, row in rows.items():
                expected = row.keys() - {"files", "targets", "facts"}
                assert expected and expected <= EXPECTED, f"{group}: {id}: {expected}"
                yield pytest.param(row, id=f"{group}: {id}")


@pytest.mark.parametrize("row", [*documents()])
def test_a_document_is_told_of_as_its_row_says(check: Check, row: Mapping[str, Any]) -> None:
    report = check(row["files"], *row.get("targets", ()), facts=row.get("facts", {}))

    told, every = lines(report), lines(report, "error", "warning", "note")
    codes = [line.partition(" ")[2] for line in told]
    everything = {*every, *(line.partition(" ")[2] for line in every)}
    assert told == row.get("lines", told), messages(report)
    assert codes == row.get("codes", codes), messages(report)
    assert lines(report, "error") == row.get("errors", lines(report, "error"))
    assert [one.finding.code for one in report.remarks] == row.get(
        "all_codes", [one.finding.code for one in report.remarks]
    )
    assert set(row.get("has", ())) <= everything, messages(report)
    assert everything.isdisjoint(row.get("hasnt", ())), messages(report)
    for code, places in row.get("places", {}).items():
        assert [int(line.split(":")[1]) for line in told if line.endswith(f" {code}")] == places
    assert row.get("says", "") in messages(report)
    assert len(report.checked) == row.get("servers", len(report.checked))
