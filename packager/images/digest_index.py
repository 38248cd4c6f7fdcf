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
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from packager.core.errors import PackagerError
from packager.core.files.opening import is_same_file
from packager.core.files.sqlite import Database
from packager.core.image import Blob, Computed, FileRange, Inline, RemoteRange, Segment
from packager.core.remote.addresses import content_of

RACY_NS = 2_000_000_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS blobs_v1 (
    fingerprint TEXT PRIMARY KEY, digest TEXT NOT NULL, proven INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS packed_v1 (
    plain TEXT, how TEXT, digest TEXT NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (plain, how)
)"""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Identity of a blob's sources (paths, sizes, times), computed without reading it."""

    text: str
    newest_change_ns: int


@dataclass(frozen=True, slots=True)
class KnownDigest:
    """A digest seen before. Not `proven`: hash the blob before relying on it."""

    digest: str
    proven: bool


class DigestIndex:
    """A small database in the user's state directory."""

    def __init__(self, path: Path, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._database = StateDatabase(path, _SCHEMA)
        self._clock_ns = clock_ns
        self._asked: dict[str, KnownDigest | None] = {}  # by fingerprint, in this process

    def get(self, blob: Blob) -> KnownDigest | None:
        """Find a digest for `blob` as its files are now."""
        fingerprint = fingerprint_of(blob)
        if fingerprint is None:
            return None
        if fingerprint.text in self._asked:  # a plan looks each file up many times
            return self._asked[fingerprint.text]

        rows = self._database.look_up(
            "SELECT digest, proven FROM blobs_v1 WHERE fingerprint = ?", (fingerprint.text,)
        )
        known = KnownDigest(rows[0][0], bool(rows[0][1])) if rows else None
        self._asked[fingerprint.text] = known
        return known

    def put(self, blob: Blob, digest: str, before: Fingerprint | None, started_ns: int) -> None:
        """Store `digest`, if the files are unchanged since `before` was taken."""
        after = fingerprint_of(blob)
        if before is None or after is None or before != after:
            return
        proven = after.newest_change_ns + RACY_NS < started_ns
        row = (after.text, digest, int(proven))
        self._database.change("INSERT OR REPLACE INTO blobs_v1 VALUES (?, ?, ?)", row)
        self._asked.pop(after.text, None)

    def get_packed(self, plain: str, how: str) -> tuple[str, int] | None:
        """Find digest and size of what has the digest `plain`, compressed as `how` says."""
        rows = self._database.look_up(
            "SELECT digest, size FROM packed_v1 WHERE plain = ? AND how = ?", (plain, how)
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def put_packed(self, plain: str, how: str, digest: str, size: int) -> None:
        """Store the compressed form of a layer; where compressing does not help, `plain` itself."""
        row = (plain, how, digest, size)
        self._database.change("INSERT OR REPLACE INTO packed_v1 VALUES (?, ?, ?, ?)", row)

    def now_ns(self) -> int:
        """The clock that file times are compared with."""
        return self._clock_ns()


class StateDatabase:
    """Tables in the state directory's file; one that cannot be used counts as empty."""

    def __init__(self, path: Path, schema: str) -> None:
        self._database = Database(
            path, schema, version=0, what="the digest index", synchronous="NORMAL", wait_s=10
        )

    def look_up(self, query: str, values: Sequence[str | int]) -> list[sqlite3.Row]:
        """Return the rows of a query; none where the file cannot be used."""
        with suppress(PackagerError, OSError), self._database.reading() as connection:
            return connection.execute(query, values).fetchall()
        return []

    def change(self, statement: str, *rows: Sequence[str | int]) -> None:
        """Run a statement once for each row, all of them or none."""
        with suppress(PackagerError, sqlite3.Error, OSError), self._database.writing() as base:
            base.executemany(statement, rows)


def _with_sources(segment: Segment) -> Iterator[Segment]:
    """Yield a segment and what it is computed of.

    A maker has read the source that counts in order, or compared what it read.
    """
    if not isinstance(segment, Computed):
        yield segment
        return
    yield segment
    for source in segment.sources:
        for one in _with_sources(source):
            yield replace(one, in_order=True) if isinstance(one, RemoteRange) else one


def fingerprint_of(blob: Blob) -> Fingerprint | None:
    """Describe a blob without reading it; None when a file is gone or a remote is not pinned."""
    parts: list[list[str | int]] = []
    newest = 0
    segments: list[Segment] = []
    for segment in blob.segments:
        segments += _with_sources(segment)
    for segment in segments:
        match segment:
            case Computed(maker=maker, sources=sources, offset=offset, length=length):
                parts.append(["computed", maker.identity, len(sources), offset, length])
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
