"""Standard streams that may be closed or full when a command begins or ends."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress


class _Closed(io.TextIOBase):
    """Replaces stdout where it was not open at the start: output is lost."""

    encoding = "utf-8"

    def write(self, text: str) -> int:  # noqa: ARG002
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def open_streams() -> None:
    """Open the streams that are closed: else a file of ours would take the place of one."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - as long as we run
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def flush_streams() -> OSError | None:
    """Write the buffer of stdout; return the error if that fails.

    Python would fail on it once more at its end, with a status of its own.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(1)
    except OSError as error:
        _discard(1)
        return error
    except ValueError:  # closed meanwhile
        return None
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        _discard(2)
    return None


def _discard(descriptor: int) -> None:
    """Discard the buffer of a stream."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
