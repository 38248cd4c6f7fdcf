"""Requests of one's own as a workload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packager.cli.wiring.texts import read_workload
from packager.core.errors import NotFound, UsageError
from packager.core.workload import Workload
from packager.models.samples.lengths import load_lengths, load_workload, percentile
from packager.models.samples.load import BrokenSamples
from tests.support.cases import cases


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def lengths(found: Workload) -> tuple[int, int, int, int]:
    means = (found.input_tokens, found.output_tokens)
    return (*means, found.p95_input_tokens, found.p95_output_tokens)


@cases("stated")
def test_counts_that_a_row_states_are_taken(row: Any, tmp_path: Path) -> None:
    found = load_workload(str(written(tmp_path / "log.jsonl", row)))

    assert lengths(found) == (900, 120, 900, 120)
    assert found.source == "tokens counted in 1 of 1 rows"
    assert found.name == "1 requests of log.jsonl"


@cases("texts_without_counts_are_reckoned_by_their_bytes")
def test_texts_without_counts_are_reckoned_by_their_bytes(
    row: Any, expected: tuple[int, int], tmp_path: Path
) -> None:
    found = load_workload(str(written(tmp_path / "log.jsonl", row)))

    assert (found.input_tokens, found.output_tokens) == expected
    assert "estimated as one for 4 bytes of text in the others" in found.source


def test_mean_and_p95_come_from_all_rows_however_often_one_stands(tmp_path: Path) -> None:
    pairs = [(100, 10)] * 18 + [(1100, 110), (4000, 1)]
    rows = [{"input_length": prompt, "output_length": answer} for prompt, answer in pairs]

    found = load_workload(str(written(tmp_path / "log.jsonl", *rows)))

    assert lengths(found) == (345, 15, 1100, 10)


def test_without_answers_the_default_ones_are_taken_and_that_is_said(tmp_path: Path) -> None:
    found = load_workload(str(written(tmp_path / "log.jsonl", {"text": "a" * 4000})))

    assert (found.input_tokens, found.output_tokens, found.p95_output_tokens) == (1000, 250, 0)
    assert found.source.endswith("no answers there: those of the default workload")


def test_rows_that_are_no_requests_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"input_length": 5, "output_length": 5}\nnot json\n[1]\n', encoding="utf-8")

    assert load_workload(str(path)).source.endswith("2 rows are not requests")


@cases("no_requests")
def test_a_file_without_requests_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(BrokenSamples):
        load_workload(str(path))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load_workload(str(written(tmp_path / "log.jsonl")))


def test_a_word_that_is_neither_name_nor_file_is_told_the_names() -> None:
    with pytest.raises(UsageError, match="is neither a name") as caught:
        read_workload("questionz")

    assert "questions, chat, summarise" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("numbers", "expected"), [([7], 7), (list(range(1, 21)), 19), (list(range(1, 101)), 95)]
)
def test_95_of_100_do_not_exceed_the_percentile(numbers: list[int], expected: int) -> None:
    assert percentile(numbers, 95) == expected


def test_each_length_of_a_file_is_kept_and_missing_answers_are_as_long_as_the_others(
    tmp_path: Path,
) -> None:
    path = written(
        tmp_path / "requests.jsonl",
        {"input_tokens": 900, "output_tokens": 100},
        {"no": "request"},
        {"prompt": "four letters each"},
        {"input_length": 30, "output_length": 200},
    )

    assert load_lengths(str(path)) == ((900, 100), (5, 150), (30, 200))


def test_without_any_answer_they_are_those_of_the_default_workload(tmp_path: Path) -> None:
    path = written(tmp_path / "requests.jsonl", {"prompt": "four letters each"})

    assert load_lengths(str(path)) == ((5, 250),)
