"""Jobs that somebody polls: found again without parsing, and never looked for for long."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from packager.addons.server.jobs.store import DATABASE_FILE, JobStore
from packager.addons.server.jobs.values import JobQuery
from packager.core.files import sqlite as database
from tests.support.job_values import new_job
from tests.support.known import known


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(tmp_path / "jobs")


def ended(store: JobStore, count: int) -> None:
    """Make jobs that have ended, in one transaction."""
    store.create(new_job("ended"))
    store.stop("optimization", "ended")
    columns = "kind, asked, status, created, modified"
    with closing(sqlite3.connect(store.root / DATABASE_FILE)) as connection, connection:
        connection.executemany(
            f"INSERT INTO jobs (id, name, {columns}) SELECT ?, ?, {columns} FROM jobs LIMIT 1",
            [(f"{number:032}", f"ended-{number}") for number in range(1, count)],
        )


def test_an_equal_row_is_parsed_once_and_a_changed_one_again(store: JobStore) -> None:
    store.create(new_job("a"))
    first = store.get("optimization", "a")

    assert store.get("optimization", "a") is first
    assert store.stop("optimization", "a").status == "stopped"
    assert store.get("optimization", "a").status == "stopped"


def test_long_documents_are_not_kept_in_memory(store: JobStore) -> None:
    store.create(new_job("a", document={"text": "x" * 20_000}))

    assert store.get("optimization", "a") is not store.get("optimization", "a")


def test_jobs_of_two_stores_are_told_apart(tmp_path: Path) -> None:
    first, second = JobStore(tmp_path / "one"), JobStore(tmp_path / "two")
    first.create(new_job("a"))
    (tmp_path / "two").mkdir()
    for file in (tmp_path / "one").glob("jobs.sqlite*"):
        (tmp_path / "two" / file.name).write_bytes(file.read_bytes())

    assert first.get("optimization", "a").folder.parent == tmp_path / "one"
    assert second.get("optimization", "a").folder.parent == tmp_path / "two"


def test_a_list_that_takes_long_is_left_to_a_thread(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(store, 30)
    query = JobQuery(name_contains="nothing")
    assert store.list_quickly(query) == store.list(query)

    monkeypatch.setattr(database, "_QUICK_STEPS", 100)

    assert store.list_quickly(query) is None
    assert len(store.list(JobQuery()).jobs) == 30  # nothing of the limit is left behind


def test_a_name_that_no_job_can_have_finds_nothing(store: JobStore) -> None:
    store.create(new_job("a"))

    assert store.list_quickly(JobQuery(name_contains="\n")).jobs == ()  # type: ignore[union-attr]


def test_few_jobs_that_run_are_found_among_very_many(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(store, 200)
    store.create(new_job("runs"))
    store.claim(1)
    monkeypatch.setattr(database, "_QUICK_STEPS", 600)
    alive = frozenset({"queued", "running", "stopping"})

    page = known(store.list_quickly(JobQuery(kind="optimization", statuses=alive)))  # type: ignore[arg-type]

    assert [job.name for job in page.jobs] == ["runs"]
