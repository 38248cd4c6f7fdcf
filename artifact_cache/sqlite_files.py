"""SQLite files: tables that are made whole or not at all, and files that can be made anew.

The version of the tables is the file's `user_version`; 0 is a file that has none yet.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of a file's tables."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def make_tables(connection: sqlite3.Connection, schema: str, version: int) -> None:
    """Run the statements of a schema in one transaction, unless another process has meanwhile.

    Tables of another version are dropped before.
    """
    connection.execute("BEGIN IMMEDIATE")
    if version_of(connection) != version:
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (table,) in connection.execute(tables).fetchall():
            connection.execute(f'DROP TABLE "{table}"')
        for statement in schema.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("COMMIT")


def open_derived(
    place: Path | None, schema: str, version: int, *, wait_s: float, synchronous: str = "FULL"
) -> sqlite3.Connection:
    """Open a file whose content can be made anew; a damaged one is, and one of another version.

    `place` None is a database in memory.  Raises `sqlite3.OperationalError` where the file is
    locked for longer than `wait_s`, or cannot be written.
    """
    if place is None:
        return _opened(":memory:", schema, version, wait_s, synchronous)
    try:
        return _opened(str(place), schema, version, wait_s, synchronous)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        remove_derived(place)
        return _opened(str(place), schema, version, wait_s, synchronous)


def remove_derived(place: Path) -> None:
    """Remove a file that `open_derived` makes anew, and what SQLite keeps beside it."""
    for path in (place, Path(f"{place}-journal")):
        with suppress(OSError):
            path.unlink()


def _opened(
    name: str, schema: str, version: int, wait_s: float, synchronous: str
) -> sqlite3.Connection:
    connection = sqlite3.connect(name, timeout=wait_s, isolation_level=None)
    try:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        if version_of(connection) != version:
            make_tables(connection, schema, version)
    except BaseException:
        connection.close()
        raise
    connection.isolation_level = "DEFERRED"
    return connection
