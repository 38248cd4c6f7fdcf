"""What is made of a command's stderr: lines of a log, events, the error."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from packager.addons.server.jobs import output
from packager.addons.server.jobs.output import (
    Interpreter,
    Log,
    Tail,
    error_lines,
    event_lines,
    failure_text,
)
from tests.support.cases import cases, read_tables

TABLES = read_tables(__file__)

AT = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def test_lines_are_read_when_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "errors"
    tail = Tail(path, 0)

    assert list(tail.lines()) == []
    path.write_text("one\ntw")
    assert list(tail.lines()) == ["one"]
    assert tail.read == 4
    with path.open("a") as file:
        file.write("o\nthree")
    assert list(tail.lines()) == ["two"]
    assert list(tail.lines(last=True)) == ["three"]
    assert list(tail.lines(last=True)) == []


@pytest.mark.parametrize(
    ("data", "start", "lines"),
    [(b"one\ntwo\n", 4, ["two"]), (b"a\xffb\n\n", 0, ["a\ufffdb", ""])],
    ids=["another reader goes on where one stopped", "what is no text is replaced"],
)
def test_lines_are_read_from_any_place(
    tmp_path: Path, data: bytes, start: int, lines: list[str]
) -> None:
    (tmp_path / "errors").write_bytes(data)

    assert list(Tail(tmp_path / "errors", start).lines()) == lines


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "errors"
    path.write_bytes(b"x" * 1_000_000)

    lines = list(Tail(path, 0).lines())

    assert list(map(len, lines)) == [262_144, 262_144, 262_144, 213_568]


@cases("takes")
def test_events_and_errors_are_told_from_lines(
    lines: list[str],
    told: list[str] | None,
    event: dict[str, Any] | None,
    error: dict[str, Any] | None,
    rest: list[str] | None,
) -> None:
    reader = Interpreter()

    taken = [reader.take(line) for line in lines]

    assert [line for shown, _ in taken for line in shown] == (told or [])
    assert [one for _, one in taken if one is not None] == ([event] if event else [])
    assert (reader.error, reader.rest()) == (error, rest or [])
    assert reader.take("later") == (["later"], None)


def test_an_object_that_is_too_large_is_only_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_MAX_ERROR", 100)
    reader = Interpreter()
    reader.take("{")

    assert reader.take("x" * 200) == (["{", "x" * 200], None)


def test_many_lines_of_an_object_are_read_in_time_that_grows_with_them() -> None:
    reader = Interpreter()
    reader.take("{")
    begun = time.process_time()

    for _ in range(100_000):
        reader.take("x" * 30)

    assert time.process_time() - begun < 10


def test_a_rejected_plan_is_told_with_its_findings() -> None:
    error = TABLES["error"]

    assert error_lines(error) == TABLES["error_lines"]
    assert failure_text(error, "build", 3) == (
        "the plan is rejected: too large (hint: a larger instance)"
    )


def test_a_reason_is_printable_and_names_nobody() -> None:
    error = {"message": "no \x1b[31m at https://me:secret@hub/x", "hint": "ask https://a:b@c"}

    assert failure_text(error, "build", 6) == (
        "no \\x1b[31m at https://***@hub/x (hint: ask https://***@c)"
    )


@cases("events")
def test_the_log_has_steps_that_begin_and_end(event: dict[str, object], lines: list[str]) -> None:
    assert event_lines(event) == lines


def test_a_log_line_has_time_and_stage_and_stays_one_line(tmp_path: Path) -> None:
    Log(tmp_path / "log.txt").write(AT, "build", ["a\rb", "https://me:secret@hub/x"])

    assert (tmp_path / "log.txt").read_text() == (
        "2026-03-01T12:00:00.123Z build a\\rb\n2026-03-01T12:00:00.123Z build https://***@hub/x\n"
    )


def test_a_log_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MOST_LOG_BYTES", 100)
    log = Log(tmp_path / "log.txt")

    for _ in range(10):
        log.write(AT, "build", ["x" * 50])

    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert len(lines) == 3
    assert lines[-1].endswith("job the log is full; the rest is left out")


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    Log(tmp_path / "gone" / "log.txt").write(AT, "build", ["x"])


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "log.txt").symlink_to(tmp_path / "elsewhere")

    Log(tmp_path / "log.txt").write(AT, "build", ["x"])

    assert not (tmp_path / "elsewhere").exists()
