"""Processes of this machine that tests look for."""

from __future__ import annotations

import os
from pathlib import Path


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
