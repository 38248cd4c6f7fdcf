"""Starts jobs of the queue, and runners of jobs whose runner was killed.

Runners are processes of their own: they go on when the scheduler ends, and any scheduler of the
store takes care of them.  Which job begins is decided in the database; which process runs it, by
the job's lock, which the scheduler takes and its runner inherits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from packager.addons.server.jobs.errors import JobMissing, runner_not_started
from packager.addons.server.jobs.folders import LOCK_FILE, take_lock, watching
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import BackgroundJob
from packager.core.errors import PackagerError
from packager.core.files.atomic import explain_disk_errors

AT_ONCE = 1  # a step may use all memory and devices of a machine
LOOK_S = 0.5
MOST_FAILURES = 5  # of a job's runner in a row
MOST_WAIT_S = 30.0  # between two of them


class Scheduler:
    """Starts the jobs of a store, in a thread or when `tick` is called."""

    def __init__(
        self,
        store: JobStore,
        *,
        at_once: int = AT_ONCE,
        environment: Mapping[str, str] | None = None,
        on_error: Callable[[PackagerError], None] = lambda error: None,  # noqa: ARG005
    ) -> None:
        self._store = store
        self._at_once = at_once
        self._environment = environment
        self._on_error = on_error
        self._runners: dict[str, subprocess.Popen[bytes]] = {}  # that we started, by job
        self._failures: dict[str, int] = {}  # in a row, of runners that ended by themselves
        self._not_before: dict[str, float] = {}
        self._woken = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def tick(self) -> int:
        """Start jobs that are ready; return how many jobs have not ended."""
        self._look_at_runners()
        self._store.forget_secrets()
        waiting = self._store.unfinished()
        if any(map(self._store.is_late, waiting)):
            self._store.expire()
        for job in waiting:
            if job.status != "queued":
                self.look_after(job)
        while (claimed := self._store.claim(self._at_once)) is not None:
            self.look_after(claimed)
        return len(waiting)

    def look_after(self, job: BackgroundJob) -> None:
        """Start the runner of a job that is not in the queue, unless one lives."""
        if time.monotonic() < self._not_before.get(job.id, 0.0):
            return
        with explain_disk_errors(job.folder):
            try:
                lock = take_lock(job.folder / LOCK_FILE)
            except FileNotFoundError:  # the job ended and was deleted meanwhile
                return
        if lock is None:
            return
        try:
            environment = self._environment
            if secrets := self._store.secrets.get(job.id):
                environment = {**(os.environ if environment is None else environment), **secrets}
            self._runners[job.id] = start_runner(self._store.root, job.id, lock, environment)
        finally:
            os.close(lock)

    def start(self) -> None:
        """Look after the jobs in a thread, until `close`."""
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look at the queue now, such as after a job was made."""
        self._woken.set()

    def close(self) -> None:
        """End the thread; jobs that run go on."""
        self._closed.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with suppress(PackagerError):
            self._store.sweep()
        with ExitStack() as stack:
            with suppress(PackagerError, OSError):
                stack.enter_context(watching(self._store.root))
            while not self._closed.is_set():
                try:
                    self.tick()
                except PackagerError as error:  # the disk may be full for a while
                    self._on_error(error)
                except Exception as error:  # the thread must survive: no other one starts jobs
                    self._on_error(PackagerError(f"unexpected {type(error).__name__}: {error}"))
                self._woken.wait(LOOK_S)
                self._woken.clear()

    def _look_at_runners(self) -> None:
        """Fail jobs whose runner cannot do its work, such as on a disk that is full for long."""
        for job_id, runner in list(self._runners.items()):
            status = runner.poll()
            if status is None:
                continue
            del self._runners[job_id]
            if status <= 0:  # its job ended, or it was killed
                self._failures.pop(job_id, None)
                continue
            count = self._failures[job_id] = self._failures.get(job_id, 0) + 1
            self._not_before[job_id] = time.monotonic() + min(LOOK_S * 2**count, MOST_WAIT_S)
            if count >= MOST_FAILURES:
                with suppress(JobMissing):
                    why = f"its runner ended {count} times with status {status}; its log says why"
                    self._store.end(job_id, "failed", why)


def start_runner(
    root: Path, job_id: str, lock: int, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a job's runner in a new session; it inherits the job's lock.

    Raises `Unavailable`.
    """
    command = [
        sys.executable,
        "-P",
        "-m",
        "packager.addons.server.jobs.runner",
        str(root),
        job_id,
        str(lock),
    ]
    try:
        return subprocess.Popen(
            command,
            cwd=root,
            env=None if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lock,),
            start_new_session=True,
        )
    except OSError as error:  # no memory, too many processes
        raise runner_not_started(error) from error
