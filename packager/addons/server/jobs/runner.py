"""Runs one job to its end, in a process of its own.

    python -m packager.addons.server.jobs.runner ROOT ID LOCK

LOCK is the descriptor of the job's lock, which the starter took. The process has a session of its
own: whoever started it may end. When it is killed, its command keeps running, and the next runner
waits for that. The job's result is in the database before the runner ends.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from artifact_cache.secrets import remember_secret
from packager.addons.server.jobs.commands import (
    StageFiles,
    is_running,
    send_signal,
    start,
    status_of,
    take_stage_lock,
)
from packager.addons.server.jobs.errors import DirectoryGone
from packager.addons.server.jobs.folders import LOG_FILE, read_secret_names
from packager.addons.server.jobs.output import Interpreter, Log, Tail, failure_text
from packager.addons.server.jobs.progress import (
    Progress,
    count_finished,
    read_progress,
    take_event,
    write_progress,
)
from packager.addons.server.jobs.store import STOPPED_BY_REQUEST, JobStore, utc_now
from packager.addons.server.jobs.values import ENDED, NOTES_FILE, BackgroundJob, JobStatus
from packager.core.errors import PackagerError

LOOK_S = 0.1  # polling of a command's output and end
ASK_S = 0.5  # polling of the database for a stop
WRITE_S = 1.0  # how often progress is written
GRACE_S = 30.0  # between SIGTERM and SIGKILL: containers and tools are ended first
MOST_STARTS = 12  # of a command that finishes no further step
MOST_KILLS = 3  # of a command, while its runner lives
SAVE_S = 60.0  # how long a change is tried again while the disk is full
_INTERRUPTED = 130
_MAX_RUNTIME = "MaxRuntimeExceeded"
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class RunnerEnded:
    """A job is to be ended."""

    status: JobStatus
    failure: str


@dataclass(slots=True, kw_only=True)
class Runner:
    """One job and its state; its process holds the job's lock."""

    store: JobStore
    job: BackgroundJob
    clock: Callable[[], datetime] = utc_now
    grace_s: float = GRACE_S
    _log: Log = field(init=False)
    _secrets: tuple[str, ...] = field(init=False, default=())  # names of variables
    _progress: Progress = field(init=False)
    _ran_before_s: float = field(init=False, default=0.0)
    _began: float = field(init=False, default=0.0)
    _asked_at: float = field(init=False, default=0.0)
    _written_at: float = field(init=False, default=0.0)
    _kills: int = field(init=False, default=0)
    _why: RunnerEnded | None = field(init=False, default=None)  # why the command was stopped
    _child: subprocess.Popen[bytes] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._log = Log(self.job.log)
        self._progress = read_progress(self.job.folder)

    def run(self) -> None:
        """Run every stage that is not complete; end the job."""
        self.job = self._saved(lambda: self.store.begin(self.job.id))
        if self.job.status in ENDED:
            return
        self._began, self._ran_before_s = time.monotonic(), self._progress.ran_s
        again = f", start {self.job.attempt}" if self.job.attempt > 1 else ""
        notes = self.job.folder / NOTES_FILE
        earlier = notes.read_text("utf-8").splitlines() if not again and notes.exists() else []
        self._secrets = self._saved(lambda: read_secret_names(self.job.folder))
        for name in self._secrets:
            remember_secret(os.environ.get(name, ""))
        self._say([f"{self.job.kind} job {self.job.name!r}{again}", *earlier])
        ended: RunnerEnded | None = None
        while ended is None and self.job.status not in ENDED:
            ended = self._run_stage()
        if ended is not None:
            self._say([f"{ended.status}: {ended.failure}"])
            self._write(force=True)
            self.job = self._saved(lambda: self.store.end(self.job.id, ended.status, ended.failure))

    def _run_stage(self) -> RunnerEnded | None:
        """Run the next stage until it is complete; give a reason where the job is to end."""
        number = self.job.stage
        stage = self.job.asked.stages[number]
        files = StageFiles(self.job.folder, number + 1, stage.name)
        if self._progress.stage != number:
            self._progress = Progress(stage=number, ran_s=self._progress.ran_s)
        if not is_running(self.job.folder) and not files.was_started():
            if refused := self._may_start():
                return refused
            if refused := self._start(files):
                return refused
        self._follow(files)
        return self._conclude(files)

    def _may_start(self) -> RunnerEnded | None:
        if self._is_stopping():
            return RunnerEnded("stopped", STOPPED_BY_REQUEST)
        if self._is_overdue():
            return RunnerEnded("stopped", _MAX_RUNTIME)
        lost = [name for name in self._secrets if not os.environ.get(name)]
        if lost:
            return RunnerEnded(
                "failed",
                f"{', '.join(lost)} was kept in memory only, and the process that had it is gone: "
                "create the job again, or set it where jobs run",
            )
        if self._progress.starts >= MOST_STARTS:
            name = self.job.asked.stages[self.job.stage].name
            return RunnerEnded(
                "failed",
                f"stage {name!r} was started {MOST_STARTS} times and was killed each time; "
                "look at the memory of this machine",
            )
        return None

    def _start(self, files: StageFiles) -> RunnerEnded | None:
        """Start the stage's command; give a reason where it cannot be."""
        stage = self.job.asked.stages[self.job.stage]
        while (lock := take_stage_lock(self.job.folder)) is None:
            time.sleep(LOOK_S)  # somebody has it for a moment, to look whether the command runs
        self._progress = replace(
            self._progress, starts=self._progress.starts + 1, read=0, steps=(), done=0, total=None
        )
        self._write(force=True)
        self._say([f"packager {shlex.join(stage.arguments)}"], stage.name)
        try:
            self._child = self._saved(lambda: start(stage, files, lock))
        except DirectoryGone as gone:
            files.clear()
            return RunnerEnded("failed", gone.message)
        finally:
            os.close(lock)  # the command has it now
        return None

    def _follow(self, files: StageFiles) -> None:
        """Read a command's output until it has ended; stop it on request."""
        tail, reader = Tail(files.errors, self._progress.read), Interpreter()
        stopped_at: float | None = None
        while is_running(self.job.folder):
            self._read(tail, reader, files.name)
            if self._why is None:
                self._why = self._reason_to_end()
            if self._why is not None and stopped_at is None:
                stopped_at = time.monotonic() if send_signal(files, signal.SIGTERM) else None
            elif stopped_at is not None and time.monotonic() - stopped_at > self.grace_s:
                send_signal(files, signal.SIGKILL)
            self._write()
            time.sleep(LOOK_S)
        self._read(tail, reader, files.name, last=True)

    def _read(self, tail: Tail, reader: Interpreter, stage: str, *, last: bool = False) -> None:
        said: list[str] = []
        for line in tail.lines(last=last):
            lines, event = reader.take(line)
            said += lines
            if event is not None:
                self._progress = count_finished(take_event(self._progress, event))
        said += reader.rest() if last else []
        self._say(said, stage)
        self._progress = replace(self._progress, read=tail.read)

    def _conclude(self, files: StageFiles) -> RunnerEnded | None:
        """Do what follows from how the command ended: go on, try again, or end the job."""
        if self._child is not None:
            self._child.wait()
        status = status_of(files)
        if status == 0:
            self._saved(files.keep_result)
            self._kills, self._why = 0, None
            stages = self.job.stage + 1
            self._say(["complete"], files.name)
            self._write(force=True)
            self.job = self._saved(lambda: self.store.complete_stage(self.job.id, stages))
            files.clear()
            if self.job.status in ENDED:
                return None
            return RunnerEnded("stopped", STOPPED_BY_REQUEST) if self._is_stopping() else None
        if self._why is not None:
            return self._why
        if status is not None and status < 128:
            return RunnerEnded("failed", failure_text(_error_in(files), files.name, status))
        files.clear()
        how = "was interrupted" if status == _INTERRUPTED else "was killed"
        self._say([f"{how}; it is started again"], files.name)
        self._kills += 1
        if self._kills >= MOST_KILLS:
            return RunnerEnded(
                "failed",
                f"stage {files.name!r} {how} {self._kills} times; "
                "look at the memory of this machine",
            )
        return None

    def _reason_to_end(self) -> RunnerEnded | None:
        if self._is_overdue():
            return RunnerEnded("stopped", _MAX_RUNTIME)
        if time.monotonic() - self._asked_at < ASK_S:
            return None
        self._asked_at = time.monotonic()
        return RunnerEnded("stopped", STOPPED_BY_REQUEST) if self._is_stopping() else None

    def _is_stopping(self) -> bool:
        try:
            return self.store.is_stopping(self.job.id)
        except PackagerError:  # the next look may find the database in order
            return False

    def _is_overdue(self) -> bool:
        limit = self.job.asked.limits.run_s
        return limit is not None and self._ran_s() > limit

    def _ran_s(self) -> float:
        return self._ran_before_s + time.monotonic() - self._began

    def _write(self, *, force: bool = False) -> None:
        if force or time.monotonic() - self._written_at >= WRITE_S:
            self._written_at = time.monotonic()
            self._progress = replace(self._progress, ran_s=round(self._ran_s(), 3))
            write_progress(self.job.folder, self._progress)

    def _say(self, lines: list[str], stage: str = "job") -> None:
        self._log.write(self.clock(), stage, lines)

    def _saved(self, change: Callable[[], _Result]) -> _Result:
        """Return what `change` does; tried again for a while, as a full disk may be freed."""
        until = time.monotonic() + SAVE_S
        while True:
            try:
                return change()
            except PackagerError as error:
                if time.monotonic() > until or isinstance(error, DirectoryGone):
                    raise
                time.sleep(ASK_S)


def _error_in(files: StageFiles) -> Mapping[str, Any] | None:
    """Return the error of a command, also where another runner read its output."""
    reader = Interpreter()
    for line in Tail(files.errors, 0).lines(last=True):
        reader.take(line)
    return reader.error


def main(arguments: list[str]) -> int:
    """Run the job named by the arguments; the status shows whether its end was stored."""
    root, job_id, lock = arguments
    os.set_inheritable(int(lock), False)
    store = JobStore(Path(root))
    log = Log(store.root / job_id / LOG_FILE)
    try:
        Runner(store=store, job=store.get_by_id(job_id)).run()
    except PackagerError as error:
        log.write(utc_now(), "job", [f"error: {error.message}", f"hint: {error.hint}"])
        return error.exit_code
    except Exception as error:
        log.write(utc_now(), "job", [f"error: unexpected {type(error).__name__}: {error}"])
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
