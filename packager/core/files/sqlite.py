"""What stores in SQLite share: errors as ours, and times as rows keep them."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from packager.core.errors import PackagerError
from packager.core.files.atomic import explain_disk_errors

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ERRNO = {  # of SQLite's results
    "FULL": errno.ENOSPC,
    "IOERR": errno.EIO,
    "READONLY": errno.EROFS,
    "CANTOPEN": errno.EACCES,
    "PERM": errno.EACCES,
}


@contextmanager
def explain_sqlite_errors(
    path: Path, busy: Callable[[Path], PackagerError], broken: Callable[[Path, str], PackagerError]
) -> Iterator[None]:
    """Convert errors of SQLite about `path`; a row that is there already stays SQLite's own.

    `busy` makes the error of a file that is locked for too long, `broken` that of a damaged one.
    Raises `OutputFailed` for the disk.
    """
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_")
        if name.startswith(("BUSY", "LOCKED")):
            raise busy(path) from error
        code = _ERRNO.get(name.partition("_")[0])
        if code is not None:
            with explain_disk_errors(path):
                raise OSError(code, os.strerror(code)) from error
        raise broken(path, str(error)) from error


def microseconds(moment: datetime) -> int:
    """Return a time as rows keep it: in microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def time_of(value: int) -> datetime:
    """Return the time that a row keeps, in UTC."""
    return _EPOCH + value * _MICROSECOND


def between(
    column: str, after: datetime | None, before: datetime | None
) -> tuple[list[str], list[int]]:
    """Return conditions for a time between two others, both excluded, with their values."""
    bounds = [
        (f"{column} {sign} ?", microseconds(moment))
        for sign, moment in ((">", after), ("<", before))
        if moment is not None
    ]
    return [condition for condition, _ in bounds], [value for _, value in bounds]
