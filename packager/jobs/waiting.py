"""Waiting for jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from packager.jobs.errors import JobFailed, JobStopped, StillRunning
from packager.jobs.store import JobStore
from packager.jobs.values import ENDED, Job

LOOK_S = 0.2


def wait_for_all(
    store: JobStore, jobs: Sequence[Job], timeout_s: float | None, on_look: Callable[[Job], None]
) -> list[Job]:
    """Return the jobs once all of them have ended; raises `StillRunning` and `JobMissing`.

    The time is that of all of them together.  `on_look` is told how the one that is waited for
    stands, each time it is looked at.
    """
    until = None if timeout_s is None else time.monotonic() + timeout_s
    ended = []
    for asked in jobs:
        while (job := store.get(asked.kind, asked.name)).status not in ENDED:
            on_look(job)
            if until is not None and timeout_s is not None and time.monotonic() >= until:
                raise StillRunning(job.kind, job.name, job.status, timeout_s)
            time.sleep(LOOK_S)
        ended.append(job)
    return ended


def check_all_completed(jobs: Iterable[Job]) -> None:
    """Raise for the first job that failed; where none did, for the first that was stopped."""
    for job in sorted(jobs, key=lambda one: one.status != "failed"):
        check_completed(job)


def check_completed(job: Job) -> None:
    """Raise `JobFailed` or `JobStopped` for a job that ended before its work was done."""
    if job.status == "failed":
        raise JobFailed(job.kind, job.name, job.failure)
    if job.status == "stopped":
        raise JobStopped(job.kind, job.name, job.failure)
