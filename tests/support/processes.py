"""Processes of this machine: programs that tests run to their end, and those they look for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.places import ROOT


def run_program(
    *command: object,
    cwd: Path = ROOT,
    env: Mapping[str, str] = {},
    status: int | None = 0,
    timeout_s: float = 300,
    alone: bool = False,
    **how: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with our environment and more; `None`: it may end as it likes.

    `alone`: without our environment.
    """
    words, whole = [str(word) for word in command], {**({} if alone else os.environ), **env}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how}
    done = subprocess.run(words, cwd=cwd, env=whole, timeout=timeout_s, check=False, **streams)
    assert status in (None, done.returncode), f"{done.stdout}{done.stderr}"
    return done


def run_python(*words: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run this Python with words of its command line, as `run_program` does."""
    return run_program(sys.executable, *words, **how)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return _stat(pid)[0] != "Z"
    except OSError:
        return False


def parent_of(pid: int) -> int:
    """Return the process that a process belongs to; raises `OSError` where it has ended."""
    return int(_stat(pid)[1])


def left_of(root: Path) -> list[str]:
    """Processes and mounts that still name `root`."""
    lines = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    found = [point for point in lines if point.startswith(str(root))]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            found += [line] if str(root) in line else []
    return found


def _stat(pid: int) -> list[str]:
    """What /proc says of a process, from its state on: see proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
