"""Directories of a local store: who else may write to them, locks on them, durable names."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from artifact_cache.files import sync

# Where others can write, too, and no stamp says anything.
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "lustre", "ceph", "gpfs", "fuse", "9p", "beegfs")


def why_unsafe(root: Path) -> str:
    """Return why others could plant files here; "" when they cannot, or nothing is there."""
    try:
        status = root.lstat()
    except OSError:
        return ""
    if stat.S_ISLNK(status.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others can write to it; `chmod 700 {root}` keeps them out"
    return ""


def lock_directory(path: Path, how: int) -> int | None:
    """Open a directory and lock it; None when it is gone. Raises OSError when it is in use."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_on_network(root: Path) -> bool:
    """Report whether other machines may write here; False when the system does not tell."""
    try:
        status = root.stat()
        device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
            fields = line.split()
            if fields[2] == device:
                return fields[fields.index("-") + 1].startswith(NETWORK_FILE_SYSTEMS)
    except (OSError, ValueError, IndexError):
        pass
    return False


def make_directory_durably(path: Path) -> None:
    """Create a directory whose name survives a crash, and its parents."""
    if path.is_dir():
        return
    make_directory_durably(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync(path.parent)
