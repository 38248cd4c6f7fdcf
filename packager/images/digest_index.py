"""Digests of blobs that were read before, so that they need not be read again.

A blob is recognised by what it is made of: the bytes of inline segments and (device, inode, size,
mtime, ctime, range) of file ranges.  ctime catches edits that restore mtime.  Files out of the
artifact cache count by their digest, which every read compares: each use links them, which changes
ctime.  For them the index has the digest of the right bytes, which those on the disk may differ
from.  Remote ranges count by their addresses, where those say which content they mean.  An entry
whose files changed less than two seconds before they were read is kept as a hint only: a later edit
could carry the same timestamps (git calls this the racy index), so it is hashed again first.

The index is a convenience: when it cannot be used, blobs are read.  Each entry is in the file
before an output has the layer, so that a killed process loses none.  Entries are not synced one by
one: each sync waited for weights that a registry on the same disk was writing.  A power failure
loses the last entries, and those blobs are read again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from packager.core.files.opening import is_same_file
from packager.core.image import Blob, FileRange, Inline, RemoteRange
from packager.core.remote.addresses import content_of
from packager.core.values import dataclass

RACY_NS = 2_000_000_000
_Result = TypeVar("_Result")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS blobs_v1 (
    fingerprint TEXT PRIMARY KEY, digest TEXT NOT NULL, proven INTEGER NOT NULL
)"""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Identity of a blob's sources (paths, sizes, times), computed without reading it."""

    text: str
    newest_change_ns: int


_PACKED_SCHEMA = """
CREATE TABLE IF NOT EXISTS packed_v1 (
    plain TEXT, how TEXT, digest TEXT NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (plain, how)
)"""


@dataclass(frozen=True, slots=True)
class KnownDigest:
    """A digest seen before. Not `proven`: hash the blob before relying on it."""

    digest: str
    proven: bool


class DigestIndex:
    """A small database in the user's state directory."""

    def __init__(self, path: Path, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._database = StateDatabase(path, _SCHEMA, _PACKED_SCHEMA)
        self._clock_ns = clock_ns
        self._asked: dict[str, KnownDigest | None] = {}  # by fingerprint, in this process

    def get(self, blob: Blob) -> KnownDigest | None:
        """Find a digest for `blob` as its files are now."""
        fingerprint = fingerprint_of(blob)
        if fingerprint is None:
            return None
        if fingerprint.text in self._asked:  # a plan looks each file up many times
            return self._asked[fingerprint.text]

        def look_up(database: sqlite3.Connection) -> KnownDigest | None:
            row = database.execute(
                "SELECT digest, proven FROM blobs_v1 WHERE fingerprint = ?", (fingerprint.text,)
            ).fetchone()
            known = KnownDigest(row[0], bool(row[1])) if row else None
            self._asked[fingerprint.text] = known
            return known

        return self._database.run(look_up, None)

    def put(self, blob: Blob, digest: str, before: Fingerprint | None, started_ns: int) -> None:
        """Store `digest`, if the files are unchanged since `before` was taken."""
        after = fingerprint_of(blob)
        if before is None or after is None or before != after:
            return
        proven = after.newest_change_ns + RACY_NS < started_ns

        def note(database: sqlite3.Connection) -> None:
            database.execute(
                "INSERT OR REPLACE INTO blobs_v1 VALUES (?, ?, ?)",
                (after.text, digest, int(proven)),
            )
            self._asked.pop(after.text, None)

        self._database.run(note, None)

    def get_packed(self, plain: str, how: str) -> tuple[str, int] | None:
        """Find digest and size of what has the digest `plain`, compressed as `how` says."""

        def look_up(database: sqlite3.Connection) -> tuple[str, int] | None:
            row = database.execute(
                "SELECT digest, size FROM packed_v1 WHERE plain = ? AND how = ?", (plain, how)
            ).fetchone()
            return (row[0], row[1]) if row else None

        return self._database.run(look_up, None)

    def put_packed(self, plain: str, how: str, digest: str, size: int) -> None:
        """Store the compressed form of a layer; where compressing does not help, `plain` itself."""
        statement = "INSERT OR REPLACE INTO packed_v1 VALUES (?, ?, ?, ?)"
        self._database.run(
            lambda database: database.execute(statement, (plain, how, digest, size)), None
        )

    def now_ns(self) -> int:
        """The clock that file times are compared with."""
        return self._clock_ns()


class StateDatabase:
    """Tables in the state directory's file; opened at the first use and kept open.

    A lock serializes threads.  An unusable file counts as empty, and keeps no entries.
    """

    def __init__(self, path: Path, *schemas: str) -> None:
        self._path = path
        self._schemas = schemas
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def run(self, work: Callable[[sqlite3.Connection], _Result], otherwise: _Result) -> _Result:
        """Return what `work` does with the connection, committed; `otherwise` where it fails."""
        with self._lock, suppress(sqlite3.Error, OSError):
            try:
                if self._connection is None:
                    self._connection = self._open()
                result = work(self._connection)
                self._connection.commit()
                return result
            except BaseException:
                self._drop()  # nothing is half written, and the next call may succeed
                raise
        return otherwise

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=10, check_same_thread=False)
        try:
            (journal,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            if journal == "wal":  # without it, what is not synced could damage the file
                connection.execute("PRAGMA synchronous=NORMAL")
            for schema in self._schemas:
                connection.execute(schema)
        except BaseException:
            connection.close()
            raise
        weakref.finalize(self, connection.close)  # at the end of the process too
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def fingerprint_of(blob: Blob) -> Fingerprint | None:
    """Describe a blob without reading it; None when a file is gone or a remote is not pinned."""
    parts: list[list[str | int]] = []
    newest = 0
    for segment in blob.segments:
        match segment:
            case Inline(data):
                parts.append(["inline", hashlib.sha256(data).hexdigest()])
            case FileRange(sha256=sha256, offset=offset, length=length) if sha256:
                parts.append(["compared", sha256, offset, length])
            case FileRange(path=path, offset=offset, length=length, checked=checked):
                try:
                    status = Path(path).stat()
                except OSError:
                    return None
                if checked and not is_same_file(status, checked):
                    return None  # its reader reports it
                newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
                identity = (status.st_dev, status.st_ino, status.st_size)
                parts.append(["file", *identity, status.st_mtime_ns, status.st_ctime_ns])
                parts.append(["range", offset, length])
            case RemoteRange(offset=offset, length=length):
                content = content_of(segment)
                if not content:
                    return None
                parts.append(["remote", content, offset, length])
    text = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return Fingerprint(text, newest)
