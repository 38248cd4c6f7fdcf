"""Task of a Ray worker: run a packager command as a process, and forward its output.

The worker's end, in whatever way, is the end of the process and of all that it
started; see `executors/supervise.py`.
"""

from __future__ import annotations

import os
import select
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packager.core.warmup import PATIENCE_S, one_command
from packager.optimize.steps.failures import read_tail
from packager.optimize.steps.processes import started


def run_job(
    plan: bytes, index: int, options: Sequence[str], given: Mapping[str, str]
) -> tuple[int, str, str, float]:
    """Run the job; return exit code, stdout, the end of stderr, and the seconds it took."""
    with tempfile.TemporaryDirectory(prefix="packager-warm-") as own:
        place, log = Path(own) / "plan.json", Path(own) / "log"
        place.write_bytes(plan)
        command = [sys.executable, "-m", "packager", *one_command(str(place), index, options)]
        said, began = b"", time.monotonic()
        with (
            log.open("ab") as sink,
            started(command, cwd=Path(own), env={**os.environ, **given}, log=sink) as process,
        ):
            try:
                while chunk := _read(process.stdout):
                    said += chunk
                code = process.wait().code
            except KeyboardInterrupt:  # how Ray cancels
                process.request_end()
                until = time.monotonic() + PATIENCE_S
                while process.running() and time.monotonic() < until:
                    time.sleep(0.05)
                raise
        seconds = time.monotonic() - began
        return code, said.decode(errors="replace"), read_tail(log), seconds


def run_words(words: Sequence[str], given: Mapping[str, str]) -> Iterator[bytes | tuple[int, str]]:
    """Run a command line of packager; yield its stdout as it comes, at last its end.

    The end is the exit code, negative for a signal, and the end of stderr.
    """
    with tempfile.TemporaryDirectory(prefix="packager-step-") as own:
        log = Path(own) / "log"
        command = [sys.executable, "-m", "packager", *words]
        with (
            log.open("ab") as sink,
            started(command, cwd=Path(own), env={**os.environ, **given}, log=sink) as process,
        ):
            while chunk := _read(process.stdout):
                yield chunk
            code = process.wait().code
        yield code, read_tail(log)


def _read(descriptor: int) -> bytes:
    """Read what comes next; a wait without end would keep Ray's cancelling from us."""
    while not select.select([descriptor], [], [], 0.5)[0]:
        pass
    return os.read(descriptor, 65536)
