"""What may lie where a regular file is expected: opening some of it waits for ever."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest


def pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def unix_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # zero
    except PermissionError:
        if os.environ.get("CI"):
            raise
        pytest.skip("making devices needs root")


def link(path: Path) -> None:
    target = path.with_name(f"{path.name}-elsewhere")
    target.write_bytes(b"{}")
    path.symlink_to(target)


def directory(path: Path) -> None:
    path.mkdir()


ODD_FILES: tuple[Callable[[Path], None], ...] = (pipe, unix_socket, device, link, directory)
