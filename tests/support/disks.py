"""Small file systems of a test's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import need, unavailable


@contextmanager
def sharing_disk(kind: str, place: Path) -> Iterator[Path]:
    """A file system, `xfs` or `btrfs`, that can share extents."""
    make = need(f"mkfs.{kind}")
    if os.geteuid() != 0:
        unavailable("root, to mount a file system,")
    disk, point = place / "disk", place / "mounted"
    with disk.open("wb") as file:
        file.truncate(512 * 1024 * 1024)
    point.mkdir()
    subprocess.run([make, "-q", str(disk)], check=True, capture_output=True)
    mounted = subprocess.run(
        ["mount", "-o", "loop", str(disk), str(point)], capture_output=True, text=True
    )
    if mounted.returncode:
        unavailable(f"a kernel that mounts {kind} ({mounted.stderr.strip()})")
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True)


def used(point: Path) -> int:
    """Bytes in use, when all that waits has been written."""
    subprocess.run(["sync", "-f", str(point)], check=True)
    status = os.statvfs(point)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


@contextmanager
def small_disk(place: Path, size: str = "2m") -> Iterator[Path]:
    """A file system of a few megabytes, in memory."""
    if os.geteuid() != 0:
        unavailable("root, to mount a small disk,")
    place.mkdir()
    mounted = subprocess.run(
        [need("mount"), "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
        capture_output=True,
    )
    if mounted.returncode:
        unavailable("the right to mount a small disk")
    try:
        yield place
    finally:
        subprocess.run([need("umount"), "-l", str(place)], check=True)
