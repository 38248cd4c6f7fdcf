"""Child processes that are always killed with all of their descendants, even if we crash.

`supervise.py` is between us and the command; see there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

SUPERVISOR = Path(__file__).with_name("supervise.py")


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """Exit status of a command, negative for a signal, and its peak memory in bytes."""

    code: int
    peak_memory_bytes: int = 0


class Supervised:
    """A running command. `stdout` is its output; its errors go to the log of `started`."""

    def __init__(self, process: subprocess.Popen[bytes], status: int) -> None:
        assert process.stdout is not None
        self.stdout = process.stdout.fileno()
        self._process = process
        self._status = status

    def running(self) -> bool:
        """Whether anything of it is left."""
        return self._process.poll() is None

    def wait(self) -> ExitStatus:
        """Wait for the end. The supervisor ends last, after all of its children."""
        self._process.wait()
        report = b""
        while chunk := os.read(self._status, 4096):
            report += chunk
        if not report:
            return ExitStatus(self._process.returncode or -9)
        said = json.loads(report)
        return ExitStatus(said["code"], said["peak_memory_bytes"])

    def request_end(self) -> None:
        """Send the command SIGTERM, so that it may clean up. The caller kills it later."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        with suppress(OSError):
            for child in children.read_text().split()[:1]:  # the command is the first
                os.kill(int(child), signal.SIGTERM)

    def kill(self) -> None:
        """Kill the command and everything it started; wait until that is done."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()


@contextmanager
def started(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: IO[bytes],
    holding: Sequence[int] = (),
) -> Iterator[Supervised]:
    """Run a command; at the end of the block, kill it and everything it started.

    It inherits the file descriptors `holding`: our locks stay held until its last process ends,
    even if we end first.
    """
    status, report = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", str(SUPERVISOR), str(report), *command],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=(report, *holding),
            start_new_session=True,
        )
    except BaseException:
        os.close(status)
        raise
    finally:
        os.close(report)
    running = Supervised(process, status)
    try:
        yield running
    finally:
        _finish(running, process)
        os.close(status)


def _finish(running: Supervised, process: subprocess.Popen[bytes]) -> None:
    try:
        running.kill()
    except KeyboardInterrupt:  # a second interrupt during the cleanup
        running.kill()
    if process.stdout:
        process.stdout.close()
