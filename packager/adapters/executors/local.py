"""Runs a step as a subprocess in a private directory, with only the step's environment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from packager.core.recipe import Step
from packager.errors import PackagerError

_LOG_TAIL_BYTES = 4000


class StepFailed(PackagerError):
    """A tool ended with an error; the end of its log is in the message."""

    def __init__(self, step: Step, reason: str, log: str) -> None:
        tail = f"\n{log.rstrip()}" if log.strip() else ""
        super().__init__(f"step {step.name!r} {reason}{tail}")


class LocalExecutor:
    """One step at a time on this machine."""

    name = "local"

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir

    def run(self, step: Step) -> Mapping[str, str]:
        """Run the tool; give every file it left in its directory, by relative path.

        The tool sees `step.env` and nothing of ours.  It runs in its own process
        group, which is killed as a whole on a timeout or an interrupt.
        """
        self._work_dir.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=f"{step.name}-", dir=self._work_dir))
        try:
            self._execute(step, place)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return {
            path.relative_to(place).as_posix(): str(path)
            for path in sorted(place.rglob("*"))
            if path.is_file()
        }

    def capacity(self) -> Mapping[str, float]:
        """CPUs this process may use, and disk where steps work."""
        self._work_dir.mkdir(parents=True, exist_ok=True)
        return {
            "cpus": float(len(os.sched_getaffinity(0))),
            "disk_bytes": float(shutil.disk_usage(self._work_dir).free),
        }

    def _execute(self, step: Step, place: Path) -> None:
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                step.argv,
                cwd=place,
                env=dict(step.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(step.timeout_s)
            except subprocess.TimeoutExpired as error:
                raise StepFailed(step, f"ran over {step.timeout_s:.0f} s", _tail(log)) from error
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if code:
                raise StepFailed(step, f"ended with status {code}", _tail(log))


def _tail(log: IO[bytes]) -> str:
    size = os.fstat(log.fileno()).st_size
    return os.pread(log.fileno(), _LOG_TAIL_BYTES, max(0, size - _LOG_TAIL_BYTES)).decode(
        errors="replace"
    )
