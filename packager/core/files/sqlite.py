"""Databases of packager: one SQLite file, for any number of threads and processes.

In WAL mode readers never wait for a writer.  A write is one transaction that takes the writer's
place at its beginning, so that what it read is still so when it writes.  A process that is killed
leaves the state before its transaction or after it.

Only SQLite may open the file: closing any other descriptor of it would end the locks of all of this
process's connections, and two writers would undo each other's changes.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeVar

from artifact_cache.sqlite_files import make_tables, version_of
from packager.core.errors import PackagerError, Unavailable, UsageError
from packager.core.files.atomic import explain_disk_errors

_MOST_IDLE = 8  # connections kept open
_SMALLEST = 512  # bytes of a page; SQLite takes a shorter file for an empty one
_QUICK_STEPS = 20_000  # of SQLite's machine, which takes about 50 ns for each
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ERRNO = {  # of SQLite's results
    "FULL": errno.ENOSPC,
    "IOERR": errno.EIO,
    "READONLY": errno.EROFS,
    "CANTOPEN": errno.EACCES,
    "PERM": errno.EACCES,
}
_Result = TypeVar("_Result")


class DatabaseBroken(PackagerError):
    """A database is damaged, or the file is none."""

    exit_code = 65

    def __init__(self, what: str, path: Path, reason: str) -> None:
        super().__init__(
            f"{what} {str(path)!r} cannot be read: {reason}",
            hint="restore it from a backup, or move its directory away to begin anew",
        )


class DatabaseNewer(UsageError):
    """A later version of packager wrote the file."""

    def __init__(self, what: str, path: Path, version: int) -> None:
        super().__init__(
            f"{what} {str(path)!r} has version {version}, which this packager does not know",
            hint="use the version of packager that wrote it, or a later one",
        )


class DatabaseBusy(Unavailable):
    """Another process has the file locked for too long."""

    def __init__(self, what: str, path: Path) -> None:
        super().__init__(
            f"{what} {str(path)!r} is locked by another process",
            hint="look which process has it open, such as with `fuser`, and try again",
        )


class Database:
    """Connections to a file, which is made at the first change.

    `what` names it in errors.  With `version` 0 each connection runs the schema, whose statements
    make what is missing: several users may each have their tables in the file.
    """

    def __init__(
        self,
        path: Path,
        schema: str,
        *,
        version: int,
        what: str,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        wait_s: float = 30.0,  # for another process that writes
    ) -> None:
        self.path = path
        self._schema = schema
        self._version = version
        self._what = what
        self._synchronous = synchronous
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._writer = threading.Lock()  # SQLite's own waiters look again after pauses only
        self._idle: list[sqlite3.Connection] = []
        self._parents: list[sqlite3.Connection] = []  # never closed: that is for the parent
        self._process = os.getpid()
        weakref.finalize(self, _close, self._idle, self._process)

    def prepare(self) -> None:
        """Make a missing file, readable by this user alone, and check all of one that is there.

        Raises `DatabaseBroken`, `DatabaseNewer` and `OutputFailed`.
        """
        with self._explained():
            self._make_file()
            with explain_disk_errors(self.path):
                size = self.path.stat().st_size
                self.path.chmod(0o600)  # SQLite gives its other files the same mode
            if size < _SMALLEST:
                reason = "it is empty" if size == 0 else "it is no database"
                raise DatabaseBroken(self._what, self.path, reason)
            with self._connection() as connection:
                self._check(connection, size)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            _close(self._idle, self._process)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection with one snapshot; of a missing file, one without rows."""
        if not self.path.exists():
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as nothing:
                nothing.row_factory = sqlite3.Row
                make_tables(nothing, self._schema, self._version or 1)
                yield nothing
            return
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction, which an exception undoes."""
        with self._writer, self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def read_quickly(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result | None:
        """Return what `work` finds; None where SQLite takes longer than a millisecond or so."""
        with self.reading() as connection:
            connection.set_progress_handler(lambda: 1, _QUICK_STEPS)  # 1: no further
            try:
                return work(connection)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    return None
                raise
            finally:
                connection.set_progress_handler(None, 0)

    def check_rows(self, query: str, what: str) -> None:
        """Raise `DatabaseBroken` where a query finds rows; `what` describes the fault."""
        with self.reading() as connection:
            found = connection.execute(query).fetchone()
        if found is not None:
            raise DatabaseBroken(self._what, self.path, f"{what} {found[0]!r}")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._explained(), self._connection() as connection:
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = self._taken() or self._open()
        try:
            yield connection
        except BaseException:
            connection.close()  # and rolls back its transaction
            raise
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _taken(self) -> sqlite3.Connection | None:
        with self._lock:
            if self._process != os.getpid():  # SQLite's locks do not survive a fork
                self._parents += self._idle
                self._idle.clear()
                self._process = os.getpid()
            return self._idle.pop() if self._idle else None

    def _open(self) -> sqlite3.Connection:
        self._make_file()
        connection = sqlite3.connect(
            self.path, timeout=self._wait_s, isolation_level=None, check_same_thread=False
        )
        try:
            connection.row_factory = sqlite3.Row
            (journal,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            # Without a log, what is not synced could damage the file.
            synchronous = self._synchronous if journal == "wal" else "FULL"
            connection.execute(f"PRAGMA synchronous={synchronous}")
            self._make_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_file(self) -> None:
        """Make the complete file, then link it to its name: an empty file means data loss."""
        if self.path.exists():
            return
        with explain_disk_errors(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._version == 0:  # SQLite makes it, and the schema what it lacks
                return
            unnamed = self.path.with_name(f".{uuid.uuid4().hex}.new")
            try:
                os.close(os.open(unnamed, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                with closing(sqlite3.connect(unnamed, isolation_level=None)) as connection:
                    connection.execute("PRAGMA journal_mode=WAL")
                    self._make_tables(connection)
                with suppress(FileExistsError):
                    self.path.hardlink_to(unnamed)
            finally:
                unnamed.unlink(missing_ok=True)

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        if self._version == 0:
            for statement in self._schema.split(";"):
                connection.execute(statement)
            return
        # In this order: another process may make both between the two.
        has_tables = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
        version = version_of(connection)
        if version == 0:
            if has_tables:
                raise DatabaseBroken(self._what, self.path, "it is none of packager")
            make_tables(connection, self._schema, self._version)
        elif version != self._version:
            raise DatabaseNewer(self._what, self.path, version)

    def _check(self, connection: sqlite3.Connection, size: int) -> None:
        """Raise `DatabaseBroken` for damaged pages, and for a file that was cut.

        SQLite reads the missing part of the last page as zeros. A write-ahead log may have pages
        that are not in the file yet. (Database File Format, section 1.3.)
        """
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        log = self.path.with_name(f"{self.path.name}-wal")
        if size < pages * page_bytes and not (log.exists() and log.stat().st_size):
            cut = f"it was cut: {size:,} of {pages * page_bytes:,} bytes are left"
            raise DatabaseBroken(self._what, self.path, cut)
        (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise DatabaseBroken(self._what, self.path, state.splitlines()[-1])

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Convert errors of SQLite; a row that is there already stays SQLite's own."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            name = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_")
            if name.startswith(("BUSY", "LOCKED")):
                raise DatabaseBusy(self._what, self.path) from error
            code = _ERRNO.get(name.partition("_")[0])
            if code is not None:
                with explain_disk_errors(self.path):
                    raise OSError(code, os.strerror(code)) from error
            raise DatabaseBroken(self._what, self.path, str(error)) from error


def _close(connections: list[sqlite3.Connection], process: int) -> None:
    while connections and process == os.getpid():
        with suppress(sqlite3.Error):
            connections.pop().close()


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
