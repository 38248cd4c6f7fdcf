"""The store of jobs: what is kept, in which order it is listed, and what is refused."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import stat
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from packager.addons.server.jobs.errors import (
    JobExists,
    JobMissing,
)
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import JobLimits, JobQuery, Stage
from packager.core.errors import OutputFailed, PackagerError
from packager.core.files.sqlite import DatabaseBroken, DatabaseNewer
from tests.support.cases import cases
from tests.support.job_values import NOON, Clock, new_job
from tests.support.refusals import raises_code


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> JobStore:
    return JobStore(tmp_path / "jobs", clock=clock)


def names(store: JobStore, **query: object) -> list[str]:
    return [job.name for job in store.list(JobQuery(**query)).jobs]  # type: ignore[arg-type]


def test_a_job_is_read_as_it_was_made(store: JobStore) -> None:
    new = new_job(
        stages=(Stage("train", ("draft", "train"), {"OMP_NUM_THREADS": "1"}),),
        files={"request.json": b"{}"},
        limits=JobLimits(run_s=60, wait_s=30),
        tags={"team": "größe"},
    )

    made = store.create(new)

    assert store.get("optimization", "a") == made
    assert made.asked == replace(new, files={})
    assert (made.status, made.stage, made.attempt, made.failure) == ("queued", 0, 0, "")
    assert made.created == made.modified == NOON + timedelta(seconds=1)
    assert (made.started, made.ended) == (None, None)


def test_files_are_in_the_folder_before_the_job_is_seen(store: JobStore) -> None:
    made = store.create(new_job(files={"request.json": b"{}", "data/train.jsonl": b"[]\n"}))

    assert (made.folder / "request.json").read_bytes() == b"{}"
    assert (made.folder / "data" / "train.jsonl").read_bytes() == b"[]\n"


def test_nobody_else_can_read_anything(store: JobStore) -> None:
    store.create(new_job(files={"data/request.json": b"{}"}))

    for path in [store.root, *store.root.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_directory_that_others_could_read_is_closed(tmp_path: Path) -> None:
    root = tmp_path / "jobs"
    root.mkdir(mode=0o755)

    JobStore(root).create(new_job())

    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_name_is_used_once_among_jobs_of_a_kind(store: JobStore) -> None:
    store.create(new_job("a"))
    store.create(new_job("a", kind="benchmark"))

    with pytest.raises(JobExists, match="the name 'a' is that of another optimization job"):
        store.create(new_job("a"))

    assert len([path for path in store.root.iterdir() if path.is_dir()]) == 2


def test_a_deleted_name_can_be_used_again_and_its_id_is_not(store: JobStore) -> None:
    first = store.create(new_job("a"))
    store.stop("optimization", "a")
    store.delete("optimization", "a")

    second = store.create(new_job("a"))

    assert first.id != second.id
    assert not first.folder.exists()


@cases("files")
def test_files_outside_the_folder_or_of_the_runner_are_refused(store: JobStore, name: str) -> None:
    with raises_code("JobInvalid"):
        store.create(new_job(files={name: b""}))

    assert [path for path in store.root.glob("*") if path.is_dir()] == []


@cases("impossible")
def test_jobs_that_could_not_run_are_refused(
    store: JobStore, name: str | None, stages: tuple[tuple[str, tuple[str, ...]], ...] | None
) -> None:
    new = new_job("a" if name is None else name)
    if stages is not None:
        new = replace(new, stages=tuple(Stage(*stage) for stage in stages))
    with raises_code("JobInvalid"):
        store.create(new)


def test_a_name_of_half_a_surrogate_pair_is_refused(store: JobStore) -> None:
    with raises_code("JobInvalid"):
        store.create(new_job("\udc80"))


@pytest.mark.parametrize("name", ["a", "\udc80", "", "x" * 300])
def test_a_job_that_is_not_there_is_missing(store: JobStore, name: str) -> None:
    with pytest.raises(JobMissing):
        store.get("optimization", name)
    with pytest.raises(JobMissing):
        store.stop("optimization", name)
    with pytest.raises(JobMissing):
        store.delete("optimization", name)
    assert store.find(name) == ()


@cases("lists")
def test_lists_are_newest_first_and_filtered(
    store: JobStore, query: dict[str, Any], found: list[str]
) -> None:
    for name in ("llama-1", "qwen-1", "llama-2"):
        store.create(new_job(name))
    store.create(new_job("load", kind="benchmark"))
    store.stop("optimization", "qwen-1")

    assert names(store, **query) == found


def test_lists_are_filtered_by_time(store: JobStore) -> None:
    first, second, third = (store.create(new_job(name)) for name in ("a", "b", "c"))
    store.stop("optimization", "a")

    assert names(store, created_after=first.created) == ["c", "b"]
    assert names(store, created_before=third.created) == ["b", "a"]
    assert names(store, modified_after=third.created) == ["a"]
    assert names(store, modified_before=third.created) == ["b"]
    assert second.created < third.created


@pytest.mark.parametrize("sort_by", ["created", "name", "status"])
@pytest.mark.parametrize("descending", [True, False])
def test_pages_have_each_job_once_while_jobs_come_and_go(
    store: JobStore, sort_by: str, descending: bool
) -> None:
    for number in range(10):
        store.create(new_job(f"job-{number % 5}-{number}"))
    query = JobQuery(sort_by=sort_by, descending=descending, most=3)  # type: ignore[arg-type]
    whole = [job.name for job in store.list(replace(query, most=100)).jobs]

    seen: list[str] = []
    while True:
        page = store.list(query)
        seen += [job.name for job in page.jobs]
        if seen == whole[:3]:  # what was on the first page is gone for the second
            store.stop("optimization", whole[0])
            store.delete("optimization", whole[0])
        if not page.token:
            break
        query = replace(query, after=page.token)

    assert seen == whole


@cases("tokens")
def test_tokens_of_other_lists_are_refused(store: JobStore, token: str) -> None:
    with raises_code("PageTokenInvalid"):
        store.list(JobQuery(after=token))


def test_a_forged_token_with_half_of_a_character_is_refused(store: JobStore) -> None:
    store.create(new_job("a"))
    token = base64.urlsafe_b64encode(b'["name",true,"\\ud800",1]').decode()

    with raises_code("PageTokenInvalid"):
        store.list(JobQuery(sort_by="name", after=token))


def test_the_queue_is_first_in_first_out_whatever_the_clock_says(
    store: JobStore, clock: Clock
) -> None:
    store.create(new_job("first"))
    clock.now -= timedelta(days=1)
    store.create(new_job("second"))

    claimed = [store.claim(2), store.claim(2)]

    assert [job.name for job in claimed if job] == ["first", "second"]


def test_no_more_jobs_are_claimed_than_may_run(store: JobStore) -> None:
    for name in ("a", "b", "c"):
        store.create(new_job(name))

    claimed = [store.claim(2), store.claim(2), store.claim(2)]

    assert [job.name if job else None for job in claimed] == ["a", "b", None]


def test_a_job_that_is_being_stopped_still_has_its_place(store: JobStore) -> None:
    store.create(new_job("a"))
    store.create(new_job("b"))
    store.claim(1)
    store.stop("optimization", "a")

    assert store.claim(1) is None


def test_stopping_ends_a_queued_job_at_once_and_asks_the_runner_of_another(store: JobStore) -> None:
    store.create(new_job("a"))
    store.create(new_job("b"))
    store.claim(1)

    running, queued = store.stop("optimization", "a"), store.stop("optimization", "b")

    assert (running.status, running.ended) == ("stopping", None)
    assert (queued.status, queued.failure) == ("stopped", "stopped by request")
    assert queued.ended == queued.modified
    assert store.is_stopping(running.id)


def test_stopping_leaves_an_ended_job_as_it_is(store: JobStore) -> None:
    job = store.create(new_job())
    store.claim(1)
    ended = store.end(job.id, "failed", "no memory")

    assert store.stop("optimization", "a") == ended


def test_only_ended_jobs_are_deleted(store: JobStore) -> None:
    job = store.create(new_job())

    for change in (lambda: None, lambda: store.claim(1), lambda: store.stop("optimization", "a")):
        change()
        with raises_code("JobRunning"):
            store.delete("optimization", "a")

    assert job.folder.exists()


def test_the_last_stage_completes_a_job_also_one_that_shall_stop(store: JobStore) -> None:
    job = store.create(new_job(stages=(Stage("train", ("x",)), Stage("build", ("y",)))))
    store.claim(1)
    store.begin(job.id)
    assert store.complete_stage(job.id, 1).status == "running"
    store.stop("optimization", "a")

    done = store.complete_stage(job.id, 2)

    assert (done.status, done.stage, done.failure) == ("completed", 2, "")
    assert store.end(job.id, "stopped", "late") == done


def test_starts_of_the_runner_are_counted_and_the_first_time_is_kept(store: JobStore) -> None:
    job = store.create(new_job())
    store.claim(1)

    first, second = store.begin(job.id), store.begin(job.id)

    assert (first.attempt, second.attempt) == (1, 2)
    assert first.started == second.started is not None


def test_a_long_reason_is_cut(store: JobStore) -> None:
    job = store.create(new_job())

    ended = store.end(job.id, "failed", "x" * 2000)

    assert len(ended.failure) == 1024
    assert ended.failure.endswith("x…")


def test_times_never_go_back_with_the_clock(store: JobStore, clock: Clock) -> None:
    job = store.create(new_job())
    clock.now -= timedelta(hours=5)
    store.claim(1)
    store.begin(job.id)

    ended = store.end(job.id, "failed", "")

    assert ended.ended is not None
    assert ended.created <= ended.modified <= ended.ended


def test_a_job_that_waits_too_long_is_stopped(store: JobStore, clock: Clock) -> None:
    store.create(new_job("short", limits=JobLimits(wait_s=10)))
    store.create(new_job("patient"))
    clock.now += timedelta(seconds=20)

    late = store.expire()

    assert [(job.name, job.status, job.failure) for job in late] == [
        ("short", "stopped", "MaxPendingTimeExceeded")
    ]
    assert store.get("optimization", "patient").status == "queued"


def test_a_clock_that_is_set_back_does_not_end_a_job_in_the_queue(
    store: JobStore, clock: Clock
) -> None:
    store.create(new_job(limits=JobLimits(wait_s=10)))
    clock.now -= timedelta(days=400)

    assert store.expire() == ()


def test_folders_that_a_killed_process_left_are_swept_and_new_ones_are_not(store: JobStore) -> None:
    kept = store.create(new_job())
    old, young, foreign = (store.root / name for name in ("0" * 32, "1" * 32, "notes"))
    for folder in (old, young, foreign):
        folder.mkdir()
    for folder in (old, kept.folder):
        os.utime(folder, (1, 1))

    store.sweep()

    there = [path.exists() for path in (old, young, foreign, kept.folder)]
    assert there == [False, True, True, True]


@pytest.mark.parametrize("damage", ["text", "middle", "row"])
def test_a_damaged_database_is_told_and_left_as_it_is(store: JobStore, damage: str) -> None:
    for number in range(200):
        store.create(new_job(f"job-{number}", document={"filler": "x" * 500}))
    path = store.root / "jobs.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if damage == "row":
            connection.execute("UPDATE jobs SET asked = '{}'")
    connection.close()
    if damage != "row":
        data = bytearray(path.read_bytes())
        begin = 0 if damage == "text" else 8192
        data[begin : begin + 40_000] = b"\xff" * 40_000
        path.write_bytes(data)
    before = path.read_bytes()

    with pytest.raises(DatabaseBroken) as raised:
        JobStore(store.root).list(JobQuery(sort_by="name"))

    assert raised.value.exit_code == 65
    assert str(store.root) in raised.value.message
    assert path.read_bytes() == before


def test_a_database_of_a_later_version_is_refused(store: JobStore) -> None:
    store.create(new_job())
    with sqlite3.connect(store.root / "jobs.sqlite") as connection:
        connection.execute("PRAGMA user_version=2")
    connection.close()

    with pytest.raises(DatabaseNewer, match="has version 2"):
        JobStore(store.root).list(JobQuery())


def test_a_place_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(OutputFailed) as raised:
        JobStore(tmp_path / "file" / "jobs").create(new_job())

    assert isinstance(raised.value, PackagerError)


def test_what_is_kept_of_a_job_has_no_files_of_it(store: JobStore) -> None:
    store.create(new_job(files={"data.json": b"of a stranger"}))

    with sqlite3.connect(store.root / "jobs.sqlite") as connection:
        [(asked,)] = connection.execute("SELECT asked FROM jobs").fetchall()
    connection.close()

    assert "files" not in json.loads(asked)
