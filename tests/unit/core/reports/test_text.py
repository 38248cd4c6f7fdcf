"""Lines and tables on pages of several widths."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.core.findings import Finding
from packager.core.reports.cells import cell_width, fitted, padded, right_padded
from packager.core.reports.text import (
    finding_lines,
    fitted_line,
    page_of,
    right_table_lines,
    table_lines,
    wrapped,
)
from tests.support.cases import Case, cases, read_tables

TABLES = read_tables(__file__)


def test_a_page_without_an_end_has_a_line_a_row() -> None:
    assert table_lines(("a", "b"), [("x" * 300, "y")]) == ["a" + " " * 301 + "b", "x" * 300 + "  y"]
    assert fitted_line("word " * 100) == ["word " * 100]


@cases("tables")
def test_a_table_fits_its_page(case: Case) -> None:
    made = right_table_lines if "right" in case else table_lines

    with page_of(case["width"]):
        assert made(case["header"], case["rows"]) == case["lines"]


@cases("fitted")
def test_a_line_fits_its_page(width: int, line: str, lines: tuple[str, ...]) -> None:
    assert fitted_line(line, width) == [*lines]


@pytest.mark.parametrize(
    ("text", "cells"), [("tiny", 4), ("模型", 4), ("e\u0301", 1), ("한국어", 6), ("", 0)], ids=str
)
def test_cells_are_counted_as_terminals_do(text: str, cells: int) -> None:
    assert cell_width(text) == cells


def test_what_is_cut_is_cut_between_letters() -> None:
    assert (fitted("模型-tiny", 6), fitted("tiny", 4), fitted("abc", 0)) == ("模型-…", "tiny", "")
    assert (padded("模", 4), right_padded("模", 4)) == ("模  ", "  模")


def test_a_label_keeps_its_column() -> None:
    with page_of(40):
        lines = wrapped("needs", "NVIDIA driver 580 or later, for CUDA 13.0 and more of it")

    assert lines == TABLES["wrapped_pair"]


def test_a_finding_and_its_hint_keep_their_columns() -> None:
    with page_of(40):
        what, hint = "this takes 12.5 GB of 24 GB here", "use `--goal cost` now"
        lines = finding_lines([Finding("warning", "slow", what, hint=hint)])

    assert lines == TABLES["wrapped"]


COMMAND = (
    "packager build --model 'a model' --instance ml.g5.xlarge --quantize awq --output oci:out -q"
)


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_a_command_goes_on_with_backslashes_so_that_it_can_be_pasted(width: int) -> None:
    lines = fitted_line(COMMAND, width)

    assert len(lines) > 1
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert all(cell_width(line) <= width for line in lines)
    pasted = "\n".join(lines).replace("\\\n", "")  # as shells read it
    assert shlex.split(pasted) == shlex.split(COMMAND)


WORD = st.text("abcdefgh-:0123456789.,%`'x模\\", min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(words=st.lists(WORD, min_size=1, max_size=25), width=st.integers(20, 100))
def test_no_line_loses_a_letter_or_begins_at_the_margin(words: list[str], width: int) -> None:
    line = " ".join(words)
    lines = fitted_line(line, width)

    kept = "".join(part.removesuffix(" \\") for part in lines)
    assert kept.replace(" ", "").replace("\\", "") == line.replace(" ", "").replace("\\", "")
    assert all(part.startswith(" ") for part in lines[1:])
    assert all(cell_width(part) <= width or cell_width(part.strip()) > width - 2 for part in lines)
