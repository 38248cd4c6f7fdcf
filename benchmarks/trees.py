"""A command with all its processes: what they used and held together, and their end all at once.

`measuring` tells the largest process; a tool that works in a process of its own is held
beside its parent's memory here.  Resident sizes are added up, files that are mapped and
libraries that are shared included, ten times a second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

EVERY_S = 0.1
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Used:
    """One command, its children included."""

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int  # of all its processes together
    largest_rss_bytes: int  # of one of them
    read_bytes: int  # by read calls, whether from a disk or not; what is mapped is not counted
    written_bytes: int  # by write calls
    out: str
    killed: bool = False

    def __add__(self, other: Used) -> Used:
        """One after the other."""
        return Used(
            wall_s=self.wall_s + other.wall_s,
            cpu_s=self.cpu_s + other.cpu_s,
            peak_rss_bytes=max(self.peak_rss_bytes, other.peak_rss_bytes),
            largest_rss_bytes=max(self.largest_rss_bytes, other.largest_rss_bytes),
            read_bytes=self.read_bytes + other.read_bytes,
            written_bytes=self.written_bytes + other.written_bytes,
            out=other.out,
            killed=self.killed or other.killed,
        )


def use(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    cwd: Path | None = None,
    kill_after_s: float | None = None,
) -> Used:
    """Run a command to its end, or kill it and all that it started."""
    os.sync()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        process = subprocess.Popen(command, env=environment, cwd=cwd, stdout=out, stderr=err)
        watch = Watch(process.pid, kill_after_s)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        wall_s = time.perf_counter() - began
        watch.stop()
        moved = _moved(process.pid)  # of those that it waited for, too
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (out, err):
            stream.seek(0)
        if process.returncode and not watch.killed:
            raise SystemExit(f"{' '.join(command)} failed:\n{err.read().decode()[-3000:]}")
        return Used(
            wall_s=wall_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_rss_bytes=watch.peak_rss_bytes,
            largest_rss_bytes=usage.ru_maxrss * 1024,
            read_bytes=moved["rchar"],
            written_bytes=moved["wchar"],
            out=out.read().decode(),
            killed=watch.killed,
        )


class Watch:
    """Looks at a process and its descendants until it is stopped, or kills them."""

    def __init__(self, pid: int, kill_after_s: float | None) -> None:
        self.peak_rss_bytes = 0
        self.killed = False
        self._pid = pid
        self._end = time.monotonic() + kill_after_s if kill_after_s is not None else None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(EVERY_S):
            pids = list(family(self._pid))
            self.peak_rss_bytes = max(self.peak_rss_bytes, sum(map(_resident, pids)))
            if self._end is not None and time.monotonic() >= self._end:
                self.killed = True
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                return


def family(root: int) -> Iterator[int]:
    """Give a process and its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(path.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop(0)
        yield pid
        waiting += children.get(pid, [])


def _resident(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return 0


def _moved(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}
