"""Pipes in the place of files, such as a shell makes for `<(command)`: read, but not for ever."""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import time
from pathlib import Path
from typing import Any, BinaryIO, cast

PATIENCE_S = 60.0  # for all that a pipe gives


def open_waiting(path: Path, patience_s: float = PATIENCE_S) -> BinaryIO:
    """Open a file, or a pipe that must be written and closed in time.

    Opening never waits.  Reading from a pipe raises `TimeoutError`, an `OSError`, when its end has
    not come in time: a pipe without a writer has none.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if stat.S_ISREG(mode):
            return os.fdopen(descriptor, "rb")
        return cast("BinaryIO", io.BufferedReader(_Pipe(descriptor, patience_s)))
    except BaseException:
        os.close(descriptor)
        raise


class _Pipe(io.RawIOBase):
    def __init__(self, descriptor: int, patience_s: float) -> None:
        self._descriptor = descriptor
        self._until = time.monotonic() + patience_s
        self._patience_s = patience_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until - time.monotonic()
        # A pipe not yet opened for writing reads as ended, too: poll() distinguishes the two.
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if left_s <= 0 or not poll.poll(left_s * 1000):
            raise TimeoutError(
                errno.ETIMEDOUT, f"nobody closed this pipe in {self._patience_s:.0f} s"
            )
        data = os.read(self._descriptor, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()
