"""Digests of blobs that were read before, so that they need not be read again.

A blob is recognised by what it is made of: the bytes of inline segments and
(device, inode, size, mtime, ctime, range) of file ranges.  ctime catches
edits that restore mtime.  Files out of the artifact cache count by their digest, which is
compared whenever they are read: each use links them, which changes ctime.  What the index says
of them is the digest of the right bytes, and nothing of those on the disk.  Remote ranges count
by their addresses, where those say which content they mean.  An entry whose files changed less
than two seconds before they were read is kept as a hint only: a later edit could carry the
same timestamps (git calls this the racy index), so it is hashed again first.

The index is a convenience: when it cannot be used, blobs are read.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from packager.adapters.opening import is_same_file
from packager.adapters.remote.addresses import content_of
from packager.core.image import Blob, FileRange, Inline, RemoteRange

RACY_NS = 2_000_000_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS blobs_v1 (
    fingerprint TEXT PRIMARY KEY, digest TEXT NOT NULL, proven INTEGER NOT NULL
)"""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a blob is made of, without reading it."""

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
        self._path = path
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._asked: dict[str, KnownDigest | None] = {}  # by fingerprint, in this process

    def get(self, blob: Blob) -> KnownDigest | None:
        """Find a digest for `blob` as its files are now."""
        fingerprint = fingerprint_of(blob)
        if fingerprint is None:
            return None
        with self._lock, suppress(sqlite3.Error, OSError):
            if fingerprint.text not in self._asked:  # a plan asks for each file many times
                with closing(self._open()) as database:
                    row = database.execute(
                        "SELECT digest, proven FROM blobs_v1 WHERE fingerprint = ?",
                        (fingerprint.text,),
                    ).fetchone()
                known = KnownDigest(row[0], bool(row[1])) if row else None
                self._asked[fingerprint.text] = known
            return self._asked[fingerprint.text]
        return None

    def put(self, blob: Blob, digest: str, before: Fingerprint | None, started_ns: int) -> None:
        """Remember `digest`, when the files are still what they were `before` reading."""
        after = fingerprint_of(blob)
        if before is None or after is None or before != after:
            return
        proven = after.newest_change_ns + RACY_NS < started_ns
        with self._lock, suppress(sqlite3.Error, OSError), closing(self._open()) as database:
            database.execute(
                "INSERT OR REPLACE INTO blobs_v1 VALUES (?, ?, ?)",
                (after.text, digest, int(proven)),
            )
            database.commit()
            self._asked.pop(after.text, None)

    def get_packed(self, plain: str, how: str) -> tuple[str, int] | None:
        """Find digest and size of what has the digest `plain`, compressed as `how` says."""
        with self._lock, suppress(sqlite3.Error, OSError), closing(self._open_packed()) as database:
            row = database.execute(
                "SELECT digest, size FROM packed_v1 WHERE plain = ? AND how = ?", (plain, how)
            ).fetchone()
            return (row[0], row[1]) if row else None
        return None

    def put_packed(self, plain: str, how: str, digest: str, size: int) -> None:
        """Remember what compressing gives; where it does not help, that is `plain` itself."""
        with self._lock, suppress(sqlite3.Error, OSError), closing(self._open_packed()) as database:
            database.execute(
                "INSERT OR REPLACE INTO packed_v1 VALUES (?, ?, ?, ?)", (plain, how, digest, size)
            )
            database.commit()

    def _open_packed(self) -> sqlite3.Connection:
        return open_database(self._path, _PACKED_SCHEMA)

    def now_ns(self) -> int:
        """The clock that file times are compared with."""
        return self._clock_ns()

    def _open(self) -> sqlite3.Connection:
        return open_database(self._path, _SCHEMA)


def open_database(path: Path, schema: str) -> sqlite3.Connection:
    """Open the database of the state directory, with one more table where it lacks that."""
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, timeout=10)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(schema)
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


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
                    return None  # whoever reads it will say so
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
