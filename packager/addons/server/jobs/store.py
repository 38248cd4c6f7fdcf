"""The store of jobs: a database, and a folder for each job.

Every change is one transaction and is on the disk before the method returns.  A job's folder is
whole before the job can be seen; a folder without a job is what a killed process left, and is
swept.  Any number of threads and processes may use a store at once.
"""

from __future__ import annotations

import re
import sqlite3
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from artifact_cache.secrets import remember_secret
from packager.addons.server.jobs.errors import JobExists, JobMissing, job_invalid, job_running
from packager.addons.server.jobs.folders import (
    make_folder,
    make_private,
    remove_folder,
    write_secret_names,
)
from packager.addons.server.jobs.rows import (
    SCHEMA,
    VERSION,
    WHAT,
    asked_text,
    job_of,
    list_page,
    unfinished,
)
from packager.addons.server.jobs.values import (
    ENDED,
    BackgroundJob,
    JobPage,
    JobQuery,
    JobStatus,
    NewJob,
    SecretJob,
)
from packager.core.documents import shorten
from packager.core.files.sqlite import Database, microseconds, time_of

DATABASE_FILE = "jobs.sqlite"
MOST_FAILURE = 1024  # characters
STOPPED_BY_REQUEST = "stopped by request"
_SWEPT_AFTER_S = 3600.0  # a new folder may belong to a job that is being made
_ID = re.compile(r"[0-9a-f]{32}")
_STAGE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_MAX_NAME = 255


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


class JobStore:
    """Jobs below a directory, which is made when the first one is."""

    def __init__(self, root: Path, *, clock: Callable[[], datetime] = utc_now) -> None:
        self.root = root.absolute()
        self._database = Database(self.root / DATABASE_FILE, SCHEMA, version=VERSION, what=WHAT)
        self._clock = clock
        # Secrets of jobs that this process made, by job id: in memory only.
        self.secrets: dict[str, Mapping[str, str]] = {}

    def create(self, new: NewJob) -> BackgroundJob:
        """Keep the job and its files, queued; raises `JobExists` and `UsageError`."""
        _check(new)
        asked = asked_text(new)
        job_id = uuid.uuid4().hex
        folder = self.root / job_id
        make_private(self.root)
        make_folder(folder, new.files)
        secrets = new.secrets if isinstance(new, SecretJob) else {}
        now = microseconds(self._clock())
        try:
            if secrets:
                write_secret_names(folder, secrets)
                for secret in secrets.values():
                    remember_secret(secret)
                self.secrets[job_id] = secrets  # before the job is visible to other processes
            with self._database.writing() as connection:
                connection.execute(
                    "INSERT INTO jobs (id, kind, name, asked, status, created, modified) "
                    "VALUES (?, ?, ?, ?, 'queued', ?, ?)",
                    (job_id, new.kind, new.name, asked, now, now),
                )
        except BaseException as error:
            remove_folder(folder)
            self.secrets.pop(job_id, None)
            if isinstance(error, sqlite3.IntegrityError):
                raise JobExists(new.kind, new.name) from error
            raise
        return BackgroundJob(
            id=job_id,
            asked=_asked(new),
            status="queued",
            folder=folder,
            created=time_of(now),
            modified=time_of(now),
        )

    def forget_secrets(self) -> None:
        """Drop the secrets of jobs that have ended."""
        for job_id in list(self.secrets):
            with suppress(JobMissing):  # one that is just being made
                if self.get_by_id(job_id).status in ENDED:
                    self.secrets.pop(job_id, None)

    def get(self, kind: str, name: str) -> BackgroundJob:
        """Return the job; raises `JobMissing`."""
        with self._database.reading() as connection:
            return self._find(connection, kind, name)

    def get_by_id(self, job_id: str) -> BackgroundJob:
        """Return the job; raises `JobMissing`."""
        with self._database.reading() as connection:
            return self._find_id(connection, job_id)

    def find(self, name: str) -> tuple[BackgroundJob, ...]:
        """Return the jobs of this name, one of a kind at most."""
        if not _can_be_name(name):
            return ()
        with self._database.reading() as connection:
            rows = connection.execute("SELECT * FROM jobs WHERE name = ? ORDER BY kind", (name,))
            return tuple(job_of(row, self.root) for row in rows.fetchall())

    def list(self, query: JobQuery) -> JobPage:
        """Return a page of jobs; raises `UsageError`."""
        if query.name_contains and not _can_be_name(query.name_contains):
            return JobPage(())
        with self._database.reading() as connection:
            return list_page(connection, query, self.root)

    def list_quickly(self, query: JobQuery) -> JobPage | None:
        """Return a page of jobs; None where it takes longer than an event loop can wait for it."""
        if query.name_contains and not _can_be_name(query.name_contains):
            return JobPage(())
        return self._database.read_quickly(
            lambda connection: list_page(connection, query, self.root)
        )

    def unfinished(self) -> tuple[BackgroundJob, ...]:
        """Return the jobs that have not ended, in the order of the queue."""
        with self._database.reading() as connection:
            return tuple(unfinished(connection, self.root))

    def stop(self, kind: str, name: str) -> BackgroundJob:
        """Request the end of a job; one that has ended is unchanged.

        A job in the queue is stopped at once; the runner of another one ends it in a moment.
        """
        with self._database.writing() as connection:
            job = self._find(connection, kind, name)
            if job.status == "queued":
                return self._end(connection, job, "stopped", STOPPED_BY_REQUEST)
            if job.status == "running":
                return self._change(connection, job, status="stopping")
            return job

    def delete(self, kind: str, name: str) -> None:
        """Remove a job that has ended, with its folder; raises `UsageError` for others."""
        with self._database.writing() as connection:
            job = self._find(connection, kind, name)
            if job.status not in ENDED:
                raise job_running(kind, name)
            connection.execute("DELETE FROM jobs WHERE id = ?", (job.id,))
        remove_folder(job.folder)

    def tag(self, kind: str, name: str, tags: Mapping[str, str]) -> BackgroundJob:
        """Replace the tags of a job; raises `JobMissing`."""
        with self._database.writing() as connection:
            job = self._find(connection, kind, name)
            asked = asked_text(replace(job.asked, tags=dict(tags)))
            return self._change(connection, job, asked=asked)

    def claim(self, at_once: int) -> BackgroundJob | None:
        """Mark the next job of the queue as running; None where it is empty or enough jobs run.

        Concurrent calls are safe: each job is returned once, and at most `at_once` run.
        """
        with self._database.writing() as connection:
            (running,) = connection.execute(
                "SELECT COUNT(*) FROM jobs WHERE status IN ('running', 'stopping')"
            ).fetchone()
            if running >= at_once:
                return None
            row = connection.execute(
                "SELECT * FROM jobs WHERE status = 'queued' ORDER BY number LIMIT 1"
            ).fetchone()
            job = job_of(row, self.root) if row else None
            return self._change(connection, job, status="running") if job else None

    def is_late(self, job: BackgroundJob) -> bool:
        """Return whether a job has waited in the queue for longer than it may."""
        limit = job.asked.limits.wait_s
        waited = (self._clock() - job.created).total_seconds()
        return job.status == "queued" and limit is not None and waited > limit

    def expire(self) -> tuple[BackgroundJob, ...]:
        """Stop jobs that waited in the queue for longer than they may; return them."""
        with self._database.writing() as connection:
            late = [job for job in unfinished(connection, self.root) if self.is_late(job)]
            return tuple(
                self._end(connection, job, "stopped", "MaxPendingTimeExceeded") for job in late
            )

    def begin(self, job_id: str) -> BackgroundJob:
        """Count a start of the job's runner, which holds its lock; returns the job as it is then.

        One that has ended, or shall end, is left as it is.
        """
        with self._database.writing() as connection:
            job = self._find_id(connection, job_id)
            if job.status not in ("queued", "running"):
                return job
            started = job.started or self._clock()
            return self._change(
                connection,
                job,
                status="running",
                attempt=job.attempt + 1,
                started=microseconds(started),
            )

    def complete_stage(self, job_id: str, stages: int) -> BackgroundJob:
        """Count complete stages; a job whose last stage is complete is completed.

        This also holds for a job that is stopping, since all of its work is done.
        """
        with self._database.writing() as connection:
            job = self._find_id(connection, job_id)
            if job.status in ENDED:
                return job
            job = self._change(connection, job, stage=stages)
            if stages < len(job.asked.stages):
                return job
            return self._end(connection, job, "completed", "")

    def end(self, job_id: str, status: JobStatus, failure: str) -> BackgroundJob:
        """End a job that is not complete; one that has ended stays as it is."""
        with self._database.writing() as connection:
            job = self._find_id(connection, job_id)
            return job if job.status in ENDED else self._end(connection, job, status, failure)

    def is_stopping(self, job_id: str) -> bool:
        """Return whether the job's end was requested, or the job deleted."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT status FROM jobs WHERE id = ?", (job_id,)).fetchone()
            return row is None or row["status"] not in ("queued", "running")

    def sweep(self) -> None:
        """Remove folders that no job has, which killed processes left."""
        before = time.time() - _SWEPT_AFTER_S
        folders = [path for path in self.root.glob("*") if _ID.fullmatch(path.name)]
        if not folders:
            return
        with self._database.reading() as connection:
            jobs = {row["id"] for row in connection.execute("SELECT id FROM jobs")}
        for folder in folders:
            with suppress(OSError):
                if folder.name not in jobs and folder.stat().st_mtime < before:
                    remove_folder(folder)

    def _find(self, connection: sqlite3.Connection, kind: str, name: str) -> BackgroundJob:
        if not _can_be_name(name):
            raise JobMissing(kind, name)
        row = connection.execute(
            "SELECT * FROM jobs WHERE kind = ? AND name = ?", (kind, name)
        ).fetchone()
        if row is None:
            raise JobMissing(kind, name)
        return job_of(row, self.root)

    def _find_id(self, connection: sqlite3.Connection, job_id: str) -> BackgroundJob:
        row = connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if row is None:
            raise JobMissing("", job_id)
        return job_of(row, self.root)

    def _change(
        self, connection: sqlite3.Connection, job: BackgroundJob, **columns: Any
    ) -> BackgroundJob:
        # After the clock was set back, times must not decrease.
        now = max(microseconds(self._clock()), microseconds(job.modified))
        columns = {"modified": now, **columns}
        names = ", ".join(f"{name} = ?" for name in columns)
        connection.execute(f"UPDATE jobs SET {names} WHERE id = ?", (*columns.values(), job.id))
        return self._find_id(connection, job.id)

    def _end(
        self, connection: sqlite3.Connection, job: BackgroundJob, status: JobStatus, failure: str
    ) -> BackgroundJob:
        ended = max(microseconds(self._clock()), microseconds(job.modified))
        text = failure if len(failure) <= MOST_FAILURE else f"{failure[: MOST_FAILURE - 1]}…"
        return self._change(
            connection, job, status=status, ended=ended, modified=ended, failure=text
        )


def _can_be_name(name: str) -> bool:
    return 0 < len(name) <= _MAX_NAME and name.isprintable()


def _asked(new: NewJob) -> NewJob:
    """Return the job's request, without files and secrets."""
    kept = {one.name: getattr(new, one.name) for one in fields(NewJob)}
    return NewJob(**{**kept, "files": {}})


def _check(new: NewJob) -> None:
    """Refuse what could not be run later; the API's own rules are stricter."""
    if not _can_be_name(new.name):
        raise job_invalid(
            f"invalid name of a job: {shorten(new.name, 80)}",
            hint=f"give it 1 to {_MAX_NAME} printable characters",
        )
    if not new.stages:
        raise job_invalid(
            f"job {shorten(new.name, 80)} has no stage", hint="give it one command, or several"
        )
    for stage in new.stages:
        if not _STAGE_NAME.fullmatch(stage.name):
            raise job_invalid(
                f"invalid name of a stage: {shorten(stage.name, 80)}",
                hint="use lower case letters, digits and hyphens, 63 at most",
            )
        if not stage.arguments or any("\0" in one for one in stage.arguments):
            raise job_invalid(
                f"stage {stage.name!r} has no command that could run",
                hint="give it a command of packager, without zero bytes",
            )
