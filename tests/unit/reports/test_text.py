"""Lines and tables on pages of several widths."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.findings import Finding
from packager.reports.cells import cell_width, fitted, padded, right_padded
from packager.reports.text import (
    finding_lines,
    fitted_line,
    page_of,
    right_table_lines,
    table_lines,
    wrapped,
)

DIGEST = "sha256:" + "ab" * 32


def test_a_page_without_an_end_has_a_line_a_row() -> None:
    assert table_lines(("a", "b"), [("x" * 300, "y")]) == [
        "a" + " " * 301 + "b",
        "x" * 300 + "  y",
    ]
    assert fitted_line("word " * 100) == ["word " * 100]


def test_columns_without_room_go_on_below_whole_and_aligned() -> None:
    rows = [("ml.g5.xlarge", "1 x A10G", "32,858", "1.4084"), ("ml.g5.2xlarge", "1", "7", "")]

    with page_of(26):
        lines = table_lines(("instance", "devices", "tokens/s", "$/h"), rows)

    assert lines == [
        "instance       devices",
        "    tokens/s  $/h",
        "ml.g5.xlarge   1 x A10G",
        "    32,858    1.4084",
        "ml.g5.2xlarge  1",
        "    7",
    ]


def test_numbers_stay_aligned_to_the_right() -> None:
    with page_of(20):
        lines = right_table_lines(("requests", "ms", "$/1M out"), [("1", "55", "0.18")])

    assert lines == ["  requests  ms", "      $/1M out", "         1  55", "          0.18"]


def test_words_of_a_last_column_are_set_under_it() -> None:
    with page_of(44):
        lines = table_lines(("name", "what"), [("evaluate", "measures what quantizing did to it")])

    assert lines == ["name      what", "evaluate  measures what quantizing did to it"]
    with page_of(40):
        assert table_lines(
            ("name", "what"), [("evaluate", "measures what quantizing did to it")]
        ) == [
            "name      what",
            "evaluate  measures what quantizing did",
            "            to it",
        ]


def test_letters_of_two_cells_keep_columns_straight() -> None:
    assert table_lines(("model", "size"), [("模型", "1 B"), ("tiny", "2 B")]) == [
        "model  size",
        "模型   1 B",
        "tiny   2 B",
    ]


@pytest.mark.parametrize(
    ("text", "cells"),
    [("tiny", 4), ("模型", 4), ("e\u0301", 1), ("한국어", 6), ("", 0)],
    ids=str,
)
def test_cells_are_counted_as_terminals_do(text: str, cells: int) -> None:
    assert cell_width(text) == cells


def test_what_is_cut_is_cut_between_letters() -> None:
    assert (fitted("模型-tiny", 6), fitted("tiny", 4), fitted("abc", 0)) == ("模型-…", "tiny", "")
    assert (padded("模", 4), right_padded("模", 4)) == ("模  ", "  模")


def test_a_label_keeps_its_column() -> None:
    with page_of(40):
        lines = wrapped("needs", "NVIDIA driver 580 or later, for CUDA 13.0 and more of it")

    assert lines == [
        "needs      NVIDIA driver 580 or later,",
        "           for CUDA 13.0 and more of it",
    ]


def test_a_finding_and_its_hint_keep_their_columns() -> None:
    with page_of(40):
        lines = finding_lines(
            [
                Finding(
                    "warning",
                    "slow",
                    "this takes 12.5 GB of 24 GB here",
                    hint="use `--goal cost` now",
                )
            ]
        )

    assert lines == [
        "warning  slow: this takes 12.5 GB of",
        "         24 GB here",
        "         hint: use `--goal cost` now",
    ]


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        (
            "error: it needs 141.1 GB, there is 22.4 GiB",
            ["error: it needs 141.1 GB, there is", "       22.4 GiB"],
        ),
        ("put it on 8 x H100 for 30 s at most", ["put it on 8 x H100 for 30 s at most"]),
        (
            "and put everything on all of those 8 x H100",
            ["and put everything on all of those", "  8 x H100"],
        ),
        ("| a log's line stays as it is however long it was", None),
    ],
    ids=["unit", "short", "factor", "log"],
)
def test_a_number_stays_with_its_unit(line: str, lines: list[str] | None) -> None:
    assert fitted_line(line, 40) == (lines or [line])


def test_a_digest_begins_its_own_line_where_it_does_not_fit_behind_a_name() -> None:
    assert fitted_line(f"oci:/a/directory:latest@{DIGEST}", 80) == [
        "oci:/a/directory:latest@",
        f"  {DIGEST}",
    ]
    assert fitted_line(f"m@{DIGEST}", 80) == [f"m@{DIGEST}"]


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


def test_a_command_within_a_sentence_does_so_too() -> None:
    lines = fitted_line(f"hint: `{COMMAND}` does it", 60)

    assert lines == [
        "hint: `packager build --model 'a model' \\",
        "      --instance ml.g5.xlarge --quantize awq \\",
        "      --output oci:out -q` does it",
    ]


def test_a_sentence_about_packager_is_no_command() -> None:
    line = "built by   packager 0.2.0, engine vllm 0.32.0, precision bf16 - and TP 1"

    assert fitted_line(line, 40) == [
        "built by   packager 0.2.0, engine vllm",
        "           0.32.0, precision bf16 - and",
        "           TP 1",
    ]


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
