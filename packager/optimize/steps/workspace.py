"""A directory of one build, for results of steps until they are in the image.

It is beside the cache, so that a hit is a link: a collector may remove the
cache's own name of a file, and the build still has its bytes.  The directory
is locked while its build lives; the next build removes those of dead ones.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from packager.core.files.atomic import explain_disk_errors


class Workspace:
    """Made when it is first needed, removed at the end."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._place: Path | None = None
        self._lock = -1

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._place is not None:
            remove_tree(self._place)
            os.close(self._lock)
            self._place = None

    def directory(self, name: str) -> Path:
        """Return a new, empty directory."""
        place = self._open()
        directory = place / f"{name}-{secrets.token_hex(4)}"
        with explain_disk_errors(directory):
            directory.mkdir(mode=0o700)
        return directory

    def _open(self) -> Path:
        if self._place is None:
            with explain_disk_errors(self._root):
                self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._reap()
                place = self._root / f"{os.getpid()}-{secrets.token_hex(6)}"
                place.mkdir(mode=0o700)
                self._lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                self._place = place
        return self._place

    def _reap(self) -> None:
        """Remove the work of killed builds. A directory just made may not be locked yet."""
        for path in self._root.iterdir():
            with suppress(OSError):
                if os.path.lexists(f"/proc/{path.name.partition('-')[0]}"):
                    continue
                remove_unless_held(path)


def remove_unless_held(place: Path) -> None:
    """Remove a tree; raise OSError where a process holds a lock on it."""
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(place)
    finally:
        os.close(lock)


def remove_tree(place: Path) -> None:
    """Remove a tree with everything that steps may have made read-only."""
    for parent, names, _ in os.walk(place):
        for name in names:
            with suppress(OSError):
                Path(parent, name).chmod(0o700)
    shutil.rmtree(place, ignore_errors=True)
