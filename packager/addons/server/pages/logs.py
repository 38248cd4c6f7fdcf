"""Parts of growing logs, in whole lines."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from packager.core.text import escape_text

TAIL_BYTES = 64 * 1024  # of a log that a page begins with
CHUNK_BYTES = 64 * 1024  # that are sent at a time


def log_tail(log: Path, most: int = TAIL_BYTES) -> tuple[str, int]:
    """Return the end of a log and the offset after it; nothing for a missing log."""
    try:
        size = log.stat().st_size
    except OSError:
        return "", 0
    start = max(0, size - most)
    text, end = log_part(log, start, most)
    if start:
        text = text.partition("\n")[2]
    return text, end


def log_part(log: Path, start: int, most: int = CHUNK_BYTES) -> tuple[str, int]:
    """Return the whole lines of a log from `start` on, and the offset after them.

    A line longer than `most` bytes is split. Control characters are escaped: a log is untrusted
    text.
    """
    try:
        data = _read(log, start, most)
    except OSError:
        return "", start
    if len(data) < most:
        whole = data[: data.rfind(b"\n") + 1]
    else:
        whole = data[: data.rfind(b"\n") + 1] or data
    return log_text(whole), start + len(whole)


def log_text(data: bytes) -> str:
    """Return a part of a log as escaped text."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return escape_text(text)


def _read(log: Path, start: int, most: int) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(log, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.pread(descriptor, most, start)
    finally:
        os.close(descriptor)
