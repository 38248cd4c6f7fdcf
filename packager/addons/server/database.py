"""SQLite files of a server: opened by one process, with errors that have hints."""

from __future__ import annotations

import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

from packager.core.errors import PackagerError, Unavailable, UsageError
from packager.core.files.atomic import explain_disk_errors
from packager.core.files.sqlite import explain_sqlite_errors

_BUSY_S = 10.0


class StateBroken(PackagerError):
    """A file of the server's state is damaged, or is not a database."""

    exit_code = 65

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"the server's state {str(path)!r} cannot be read: {reason}",
            hint="restore it from a backup, or move its directory away to begin anew",
        )


class StateNewer(UsageError):
    """A later version of packager wrote the file."""

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(
            f"the server's state {str(path)!r} has version {version}, "
            "which this packager does not know",
            hint="use the version of packager that wrote it, or a later one",
        )


class StateBusy(Unavailable):
    """Another process has the file locked for too long."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the server's state {str(path)!r} is locked by another process",
            hint="look which process has it open, such as with `fuser`, and try again",
        )


class Database:
    """One connection that threads share by turns; every transaction is on disk when it ends."""

    def __init__(
        self,
        path: Path,
        schema: str,
        *,
        version: int,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
    ) -> None:
        self._path = path
        self._lock = threading.Lock()
        with explain_disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._explained():
            if not path.exists():
                _make(path, schema, version)
            _check_size(path)
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(version, synchronous)
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, locked for this thread."""
        with self._lock, self._explained():
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction, which an exception undoes."""
        with self._lock, self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def check(self, query: str, what: str) -> None:
        """Raise `StateBroken` where a query finds rows; `what` describes the fault."""
        with self.reading() as database:
            found = database.execute(query).fetchone()
        if found is not None:
            raise StateBroken(self._path, f"{what} {found[0]!r}")

    def _prepare(self, version: int, synchronous: str) -> None:
        (found,) = self._connection.execute("PRAGMA user_version").fetchone()
        with explain_disk_errors(self._path):
            self._path.chmod(0o600)  # SQLite gives its other files the same mode
        if found == 0:  # no version of packager has left it so
            raise StateBroken(self._path, "it is none of packager")
        if found != version:
            raise StateNewer(self._path, found)
        (state,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise StateBroken(self._path, state.splitlines()[-1])
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={synchronous}")

    def _explained(self) -> AbstractContextManager[None]:
        return explain_sqlite_errors(self._path, StateBusy, StateBroken)


def _make(path: Path, schema: str, version: int) -> None:
    """Make the complete file, then link it to its name: an empty file means data loss."""
    unnamed = path.with_name(f".{uuid.uuid4().hex}.new")
    try:
        with explain_disk_errors(path):
            os.close(os.open(unnamed, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(unnamed, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(schema)
            connection.execute(f"PRAGMA user_version={version}")
        with explain_disk_errors(path), suppress(FileExistsError):
            path.hardlink_to(unnamed)
    finally:
        unnamed.unlink(missing_ok=True)


def _check_size(path: Path) -> None:
    """Raise `StateBroken` for a file that is shorter than its header states.

    SQLite reads the missing part of the last page as zeros. A write-ahead log may have pages that
    are not in the file yet. (Database File Format, section 1.3.)
    """
    with path.open("rb") as file:
        head = file.read(100)
        size = os.fstat(file.fileno()).st_size
    log = path.with_name(f"{path.name}-wal")
    if size == 0:
        raise StateBroken(path, "it is empty")
    if len(head) < 100 or not head.startswith(b"SQLite format 3\0"):
        raise StateBroken(path, "it is no database")
    page = int.from_bytes(head[16:18]) or 0
    page_bytes = 65536 if page == 1 else page
    pages = int.from_bytes(head[28:32])
    if size < pages * page_bytes and not (log.exists() and log.stat().st_size):
        raise StateBroken(path, f"it was cut: {size:,} of {pages * page_bytes:,} bytes are left")
