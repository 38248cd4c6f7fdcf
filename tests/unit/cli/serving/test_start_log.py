"""What engines' logs tell of a start: vLLM's as it wrote it here, others' as people published them.

Times are those of the files; `started` and `ready` are made up around them.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from packager.cli.serving.start_log import (
    SplitStart,
    StartMarks,
    parse_time,
    read_marks,
    split_start,
)
from tests.support.cases import cases_of
from tests.support.places import DATA

cases = cases_of(__file__, "logs")

LOGS = DATA / "start_logs"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def split(name: str, started: str, ready: str) -> SplitStart:
    marks = read_marks((LOGS / f"{name}.log").read_text())
    return split_start(marks, started=at(started), ready=at(ready))


def parts(found: SplitStart) -> tuple[float | None, ...]:
    told = (found.importing, found.weights, found.compiling, found.ready, found.untold)
    return tuple(None if part is None else round(part, 2) for part in told)


@cases("starts")
def test_a_start_is_split_at_what_its_engine_says(
    name: str, started: str, ready: str, expected: list[float | str]
) -> None:
    assert parts(split(name, started, ready)) == tuple(
        None if one == "none" else one for one in expected
    )


def test_a_duration_tells_when_reading_began_where_no_line_does() -> None:
    log = "2026-11-27T10:00:50Z (Worker pid=5) INFO [x.py:1] Loading weights took 20.00 seconds\n"

    assert read_marks(log).weights_begin == at("2026-11-27T10:00:30")


def test_the_launchers_word_of_compiled_files_is_kept() -> None:
    marks = read_marks((LOGS / "vllm-two-ranks.log").read_text())

    assert marks.compiled == "41 files compiled ahead of time are in place"


@cases("a_log_that_tells_nothing_splits_nothing")
def test_a_log_that_tells_nothing_splits_nothing(log: str) -> None:
    found = split_start(read_marks(log), started=100.0, ready=130.0)

    assert (found.importing, found.weights) == (None, None)
    assert found.untold == 30.0


def test_an_answer_that_a_late_clock_has_before_the_engines_end_came_after_it() -> None:
    """Heard of the container 0.5 s late, a client took the answer of 130.2 for one of 129.7."""
    marks = StartMarks(weights_begin=110.0, weights_end=120.0, engine_end=130.0)

    found = split_start(marks, started=100.0, ready=129.7)

    assert (found.compiling, found.ready, found.untold) == (10.0, 0.0, 0.0)


def test_marks_before_the_start_or_swapped_are_no_parts() -> None:
    marks = StartMarks(weights_begin=50.0, weights_end=40.0, engine_end=120.0)

    assert parts(split_start(marks, started=60.0, ready=130.0)) == (None, None, 80.0, 10.0, 0.0)


@cases("times_are_read_as_docker_writes_them")
def test_times_are_read_as_docker_writes_them(text: str, expected: float | None) -> None:
    assert parse_time(text) == (None if expected is None else pytest.approx(expected, abs=1e-6))
