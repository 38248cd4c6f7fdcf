"""Free disk for model data: checked before and during a download, with a reserve."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from packager.core.errors import OutputFailed
from packager.core.units import GIB, MIB

RESERVE_BYTES = GIB  # that stays free, or a twentieth of a small disk
_LOOK_EVERY = 64 * MIB  # bytes that are written between two looks


def disk_too_small(needed: int, free: int, folder: Path) -> OutputFailed:
    """Return an error: model data do not fit on the disk, or would use up its reserve."""
    return OutputFailed(
        f"the model data need {needed / GIB:.1f} GiB of disk, and {free / GIB:.1f} GiB are "
        "free beyond the reserve",
        hint=f"free some of the disk of {str(folder)!r}: endpoints that are deleted give back "
        "theirs",
        code="DiskTooSmall",
    )


class DiskSpace:
    """Checks the disk of a folder while threads write there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._unseen = 0  # bytes that were written since the last look

    def check(self, size: int) -> None:
        """Raise `OutputFailed` unless so many bytes can still be written."""
        usage = shutil.disk_usage(self._folder)
        free = usage.free - min(RESERVE_BYTES, usage.total // 20)
        if size > free:
            raise disk_too_small(size, max(0, free), self._folder)

    def wrote(self, size: int) -> None:
        """Count written bytes; raises `OutputFailed` once the reserve is reached.

        Other processes write to the disk, too, so the first check is not enough.
        """
        with self._lock:
            self._unseen += size
            is_due = self._unseen >= _LOOK_EVERY
            if is_due:
                self._unseen = 0
        if is_due:
            self.check(0)
