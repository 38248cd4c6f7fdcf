"""Running and timing commands: wall time, CPU of the command and of servers, peak memory."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One timed piece of work."""

    wall_s: float
    cpu_s: float  # of the work and its children
    server_cpu_s: float  # of the registry and, where one is used, the engine
    peak_rss_bytes: int  # of its largest child
    written_bytes: int  # to disks, by it and its children; servers not counted


def timed(work: Callable[[], object], servers: Sequence[int]) -> Run:
    """Time `work`, children included. The page cache is warm: the weights were just written."""
    os.sync()
    _CHILDREN.clear()
    own, servers_before = time.process_time(), sum(map(_cpu_of, servers))
    started = time.perf_counter()
    work()
    wall = time.perf_counter() - started
    return Run(
        wall_s=wall,
        cpu_s=time.process_time() - own + sum(u.ru_utime + u.ru_stime for u in _CHILDREN),
        server_cpu_s=sum(map(_cpu_of, servers)) - servers_before,
        peak_rss_bytes=max((usage.ru_maxrss * 1024 for usage in _CHILDREN), default=0),
        written_bytes=sum(usage.ru_oublock * 512 for usage in _CHILDREN),
    )


_CHILDREN: list[resource.struct_rusage] = []  # of the work being timed


def call(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Run a command to its end, note what it used, give its stdout."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        _CHILDREN.append(usage)
        for stream in (out, err):
            stream.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{err.read().decode()[-2000:]}")
        return out.read().decode()


def median_wall(runs: Sequence[Run]) -> float:
    """The middle wall time."""
    return statistics.median(run.wall_s for run in runs)


def say(text: str) -> None:
    """Tell a watching person; stdout is for figures."""
    print(text, file=sys.stderr, flush=True)


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
