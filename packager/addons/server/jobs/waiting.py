"""Waiting for jobs, and for their turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from packager.addons.server.jobs.errors import job_failed, job_stopped, still_running
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import ENDED, BackgroundJob

LOOK_S = 0.2
_MOST_NAMES = 3  # of jobs that run, in a sentence


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Why a job of the queue waits."""

    place: int  # from 1
    queued: int  # jobs in the queue, this one among them
    running: tuple[str, ...]  # names of the jobs that run, the oldest first

    @property
    def is_behind(self) -> bool:
        """Return whether another job comes first."""
        return self.place > 1 or bool(self.running)

    @property
    def text(self) -> str:
        """Return it as a sentence's end: `place 1 of 2 in the queue, behind 'nightly'`."""
        place = f"place {self.place} of {self.queued} in the queue"
        names = [repr(name) for name in self.running[:_MOST_NAMES]]
        more = len(self.running) - len(names)
        names += [f"{more} more"] if more else []
        return f"{place}, behind {' and '.join(names)}" if names else place


def place_in_queue(store: JobStore, job: BackgroundJob) -> QueuePlace | None:
    """Return why a job waits; None for one that has left the queue."""
    alive = store.unfinished()
    queued = [one.id for one in alive if one.status == "queued"]
    if job.id not in queued:
        return None
    running = tuple(one.name for one in alive if one.status != "queued")
    return QueuePlace(queued.index(job.id) + 1, len(queued), running)


def wait_for_all(
    store: JobStore,
    jobs: Sequence[BackgroundJob],
    timeout_s: float | None,
    on_look: Callable[[BackgroundJob], object],
) -> list[BackgroundJob]:
    """Return the jobs once all of them have ended; raises `Unavailable` and `JobMissing`.

    The time is that of all of them together. `on_look` is called with the awaited job at every
    poll.
    """
    until = None if timeout_s is None else time.monotonic() + timeout_s
    ended = []
    for asked in jobs:
        while (job := store.get(asked.kind, asked.name)).status not in ENDED:
            on_look(job)
            if until is not None and timeout_s is not None and time.monotonic() >= until:
                raise still_running(job.kind, job.name, job.status, timeout_s)
            time.sleep(LOOK_S)
        ended.append(job)
    return ended


def check_all_completed(jobs: Iterable[BackgroundJob]) -> None:
    """Raise for the first job that failed; where none did, for the first that was stopped."""
    for job in sorted(jobs, key=lambda one: one.status != "failed"):
        check_completed(job)


def check_completed(job: BackgroundJob) -> None:
    """Raise `StepFailed` or `PackagerError` for a job that ended before its work was done."""
    if job.status == "failed":
        raise job_failed(job.kind, job.name, job.failure)
    if job.status == "stopped":
        raise job_stopped(job.kind, job.name, job.failure)
