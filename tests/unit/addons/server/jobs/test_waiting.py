"""What a job of the queue waits for, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.addons.server.commands.jobs_notes import WaitNotes
from packager.addons.server.jobs.folders import watching
from packager.addons.server.jobs.report import show_document, show_report
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.waiting import QueuePlace, place_in_queue
from packager.core.errors import PackagerError
from packager.core.reports.text import report_lines
from tests.support.cases import cases, read_tables
from tests.support.job_values import NOON, new_job


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(tmp_path / "jobs")


def test_the_place_in_the_queue_counts_what_was_made_before(store: JobStore) -> None:
    running, first, second = (store.create(new_job(name)) for name in ("a", "b", "c"))
    store.claim(1)

    assert place_in_queue(store, running) is None
    assert place_in_queue(store, first) == QueuePlace(1, 2, ("a",))
    assert place_in_queue(store, second) == QueuePlace(2, 2, ("a",))
    store.stop(first.kind, first.name)
    assert place_in_queue(store, second) == QueuePlace(1, 1, ("a",))


@cases("places")
def test_a_place_is_told(
    place: int, queued: int, running: list[str], text: str, is_behind: bool
) -> None:
    found = QueuePlace(place, queued, tuple(running))

    assert (found.text, found.is_behind) == (text, is_behind)


def test_what_is_waited_for_is_said_once_and_again_when_it_changes(
    store: JobStore, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = store.create(new_job("first")), store.create(new_job("second"))
    notes = WaitNotes(store, works=True)

    for _ in range(3):
        assert notes.look(second) == second
    store.claim(1)
    notes.look(second)
    store.end(first.id, "failed", "no room")
    notes.look(second)
    notes.look(store.claim(1) or second)

    assert capsys.readouterr().err.splitlines() == read_tables(__file__)["printed"]


def test_a_queue_that_nobody_works_on_is_told_of(
    store: JobStore, capsys: pytest.CaptureFixture[str]
) -> None:
    job = store.create(new_job())
    WaitNotes(store).look(job)
    with watching(store.root):
        WaitNotes(store).look(job)

    assert capsys.readouterr().err == "nobody runs jobs here: `packager jobs run` does\n"


def test_what_keeps_the_queue_from_going_on_is_warned_of_once(
    store: JobStore, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = WaitNotes(store)
    for _ in range(3):
        notes.fail(PackagerError("the disk is full"))

    assert capsys.readouterr().err == "warning: jobs: the disk is full; it is tried again\n"


def test_a_job_that_waits_shows_behind_what(store: JobStore) -> None:
    store.create(new_job("first"))
    store.claim(1)
    job = store.create(new_job("second"))
    place = place_in_queue(store, job)

    assert (
        report_lines(show_report(job, NOON, place))[2]
        == "waits      place 1 of 1 in the queue, behind 'first'"
    )
    assert show_document(job, place)["queue"] == {"place": 1, "queued": 1, "running": ("first",)}
    assert show_document(job)["queue"] is None
