"""The database of jobs: one SQLite file, for any number of threads and processes.

In WAL mode readers never wait for a writer.  A write is one transaction that takes the writer's
place at its beginning, so that what it read is still so when it writes.  A process that is killed
leaves the state before its transaction or after it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from packager.addons.server.jobs.errors import JobStoreBroken, JobStoreBusy, JobStoreNewer
from packager.addons.server.jobs.folders import make_private
from packager.core.files.atomic import explain_disk_errors
from packager.core.files.sqlite import explain_sqlite_errors

VERSION = 1
BUSY_S = 30.0  # how long a writer waits for another one
_MOST_IDLE = 8  # connections kept open
_QUICK_STEPS = 20_000  # of SQLite's machine, which takes about 50 ns for each
_Result = TypeVar("_Result")

_SCHEMA = (
    """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of the queue, whatever clocks say
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    asked TEXT NOT NULL,  -- the NewJob as JSON, without its files
    status TEXT NOT NULL,
    created INTEGER NOT NULL,  -- microseconds since 1970, as all times are
    modified INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    stage INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    failure TEXT NOT NULL DEFAULT '',
    UNIQUE (kind, name)
)""",
    "CREATE INDEX jobs_created ON jobs (created, number)",
    "CREATE INDEX jobs_name ON jobs (name, number)",
    "CREATE INDEX jobs_status ON jobs (status, number)",
)


class Database:
    """Connections to the file, which is made at its first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._parents: list[sqlite3.Connection] = []  # never closed: that is for the parent
        self._process = os.getpid()

    def read(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Return the result of `work` on one snapshot; a missing database is not created."""
        if not self.path.exists():
            with closing(sqlite3.connect(":memory:")) as nothing:
                nothing.row_factory = sqlite3.Row
                for statement in _SCHEMA:
                    nothing.execute(statement)
                return work(nothing)
        with self._connection() as connection:
            connection.execute("BEGIN")
            result = work(connection)
            connection.execute("COMMIT")
            return result

    def read_quickly(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result | None:
        """Return what `work` finds; None where SQLite takes longer than a millisecond or so."""

        def work_a_while(connection: sqlite3.Connection) -> _Result | None:
            connection.set_progress_handler(lambda: 1, _QUICK_STEPS)  # 1: no further
            try:
                return work(connection)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    return None
                raise
            finally:
                connection.set_progress_handler(None, 0)

        return self.read(work_a_while)

    def write(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Return the result of `work` in a committed transaction; roll back where it raises."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection)
            connection.execute("COMMIT")
            return result

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with self._explained():
            connection = self._taken() or self._open()
        try:
            with self._explained():
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
                self._parents, self._idle, self._process = self._idle, [], os.getpid()
            return self._idle.pop() if self._idle else None

    def _open(self) -> sqlite3.Connection:
        self._make_file()
        connection = sqlite3.connect(
            self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")  # a job that was accepted is kept
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_file(self) -> None:
        """Create the file with mode 0600; SQLite gives its other files the same mode.

        Only SQLite may open it: closing any descriptor of it would end the locks of all of this
        process's connections, and two writers would undo each other's changes.
        """
        if self.path.exists():
            return
        make_private(self.path.parent)
        with explain_disk_errors(self.path):
            unnamed = self.path.with_name(f".{uuid.uuid4().hex}.new")
            os.close(os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with suppress(FileExistsError):
                os.link(unnamed, self.path)
            unnamed.unlink()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if _version(connection) == 0:
            connection.execute("BEGIN IMMEDIATE")
            if _version(connection) == 0:  # another process made it meanwhile
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={VERSION}")
            connection.execute("COMMIT")
        version = _version(connection)
        if version != VERSION:
            raise JobStoreNewer(self.path, version)

    def _explained(self) -> AbstractContextManager[None]:
        return explain_sqlite_errors(self.path, JobStoreBusy, JobStoreBroken)


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
