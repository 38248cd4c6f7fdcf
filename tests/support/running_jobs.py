"""Jobs that run in processes of their own, and are waited for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from packager.addons.server.jobs.folders import LOCK_FILE, STAGE_LOCK_FILE
from packager.addons.server.jobs.scheduler import Scheduler
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import ENDED, BackgroundJob

PATIENCE_S = 60.0


def until(
    happened: Callable[[], bool], *, within_s: float = PATIENCE_S, every_s: float = 0.02
) -> None:
    """Wait for something; fail where it does not happen."""
    end = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(every_s)


def run_to_end(store: JobStore, job: BackgroundJob, *, at_once: int = 1) -> BackgroundJob:
    """Let a scheduler work until the job has ended; the processes of it have, too."""
    scheduler = Scheduler(store, at_once=at_once)

    def ended() -> bool:
        scheduler.tick()
        return store.get(job.kind, job.name).status in ENDED

    until(ended)
    until(lambda: not processes_of(job))
    return store.get(job.kind, job.name)


def processes_of(*jobs: BackgroundJob) -> dict[int, str]:
    """The processes that hold a lock of the jobs, and which; looks once at all there are."""
    locks = {str(job.folder / name): name for job in jobs for name in (LOCK_FILE, STAGE_LOCK_FILE)}
    found = {}
    for process in os.scandir("/proc"):
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        with suppress(OSError), os.scandir(f"{process.path}/fd") as descriptors:
            for descriptor in descriptors:  # `Path` takes ten times as long
                if lock := locks.get(os.readlink(descriptor)):  # noqa: PTH115
                    found[int(process.name)] = lock
    return found


def runner_of(job: BackgroundJob) -> int:
    """The process that runs the job; waits for it."""
    until(lambda: LOCK_FILE in processes_of(job).values())
    return next(number for number, lock in processes_of(job).items() if lock == LOCK_FILE)


def commands_of(job: BackgroundJob) -> list[int]:
    """The processes of the stage's command."""
    return [number for number, lock in processes_of(job).items() if lock == STAGE_LOCK_FILE]


def kill_all(*jobs: BackgroundJob) -> None:
    """End every process of jobs, for tests that leave one."""
    for number in processes_of(*jobs):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
