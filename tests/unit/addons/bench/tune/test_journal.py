"""Journals of tunes: what a crash leaves, who may open them, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packager.addons.bench.tune.journal import (
    Built,
    Failed,
    Rated,
    Retried,
    TuneJournal,
    open_journal,
)
from packager.core.errors import UsageError
from tests.support.tuning import ASKED, STARTED, a_load

BUILT = Built(candidate="a", name="--draft ngram", image="i:a", digest="sha256:01", seconds=1.5)
RATED = Rated(candidate="a", name="--draft ngram", round=0, loads=(a_load(10.0),), seconds=2.0)
FAILED = Failed(candidate="b", name="--quantize awq", stage="build", reason="no", seconds=0.1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with three events."""
    place = tmp_path / "state" / "tune.jsonl"
    with open_journal(place, ASKED, now=STARTED) as journal:
        for event in (BUILT, RATED, FAILED):
            journal.append(event)
    return place


def reopened(path: Path, **more: bool) -> TuneJournal:
    with open_journal(path, ASKED, now="later", **more) as journal:
        return journal


def test_events_come_back_as_they_were_written(path: Path) -> None:
    journal = reopened(path)

    assert journal.events == [BUILT, RATED, FAILED]
    assert journal.header.started == STARTED


@pytest.mark.parametrize("left", [1, 40, 200])
def test_a_line_that_a_crash_tore_is_taken_away(path: Path, left: int) -> None:
    whole = path.read_bytes()
    *_, last = whole.splitlines()
    path.write_bytes(whole[: -len(last) - 1] + last[: min(left, len(last) - 1)])

    with open_journal(path, ASKED, now=STARTED) as journal:
        assert journal.events == [BUILT, RATED]
        journal.append(Retried())

    assert reopened(path).events == [BUILT, RATED, Retried()]


@pytest.mark.parametrize("left", [0, 1, 10, 60])
def test_a_header_that_a_crash_tore_is_written_anew(path: Path, left: int) -> None:
    path.write_bytes(path.read_bytes()[:left])

    journal = reopened(path)

    assert (journal.events, journal.header.started) == ([], "later")


def test_a_line_that_no_tune_wrote_is_refused_by_its_number(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    lines[2] = b'{"event":"measured","candidate":"a"}'
    path.write_bytes(b"\n".join(lines) + b"\n")

    with pytest.raises(UsageError) as refused:
        reopened(path)

    assert refused.value.message == f"line 3 of {str(path)!r} is not of a tune's journal"


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("content", [b"my notes", b"# Read me\n\nwords\n", b'{"event": "other"}\n'])
def test_what_is_no_journal_stays_as_it_is(tmp_path: Path, content: bytes, *, fresh: bool) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_bytes(content)

    with pytest.raises(UsageError, match="line 1 of"):
        reopened(notes, fresh=fresh)

    assert notes.read_bytes() == content


def test_another_question_is_refused_with_what_differs(path: Path) -> None:
    other = {**ASKED, "goal": "latency"}

    with pytest.raises(UsageError) as refused, open_journal(path, other, now=STARTED):
        pass

    assert refused.value.message == (
        f"the journal {str(path)!r} is of another tune: its goal is 'throughput', not 'latency'"
    )


def test_a_second_tune_of_the_same_journal_is_refused(path: Path) -> None:
    with reopened_and_held(path), pytest.raises(UsageError) as refused:
        reopened(path)

    assert refused.value.message == f"another tune is at work with the journal {str(path)!r}"
    assert reopened(path).events == [BUILT, RATED, FAILED]


def reopened_and_held(path: Path):  # type: ignore[no-untyped-def]
    return open_journal(path, ASKED, now=STARTED)


def test_fresh_forgets_what_was_measured(path: Path) -> None:
    assert reopened(path, fresh=True).events == []
    assert len(path.read_bytes().splitlines()) == 1


def test_every_line_is_json_with_its_event(path: Path) -> None:
    events = [json.loads(line)["event"] for line in path.read_bytes().splitlines()]

    assert events == ["tune", "built", "measured", "failed"]
