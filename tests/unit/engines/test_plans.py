"""The sentences of corpus/plans_*.toml: what packager says of plans and options, and renders."""

from __future__ import annotations

import pytest

from tests.support.engine_rows import (
    EngineRow,
    check_rendered,
    check_said,
    findings_of,
    plan_of_row,
    read_rows,
)

ROWS = tuple(read_rows())


@pytest.mark.parametrize("row", [row for row in ROWS if row.is_judged()], ids=lambda row: row.id)
def test_what_is_asked_for_is_judged_as_its_row_says(row: EngineRow) -> None:
    check_said(row, findings_of(row))


@pytest.mark.parametrize("row", [row for row in ROWS if row.is_rendered()], ids=lambda row: row.id)
def test_what_is_planned_is_rendered_as_its_row_says(row: EngineRow) -> None:
    check_rendered(row, plan_of_row(row))


def test_every_row_expects_something() -> None:
    assert [row.id for row in ROWS if not row.is_judged() and not row.is_rendered()] == []
