"""An index of a local store, so that questions about 100,000 entries need not read them all.

It is never the truth: whatever it names is read and checked again before it is
used, and when it is damaged, out of date or cannot be written, it is made anew.

A directory's mtime changes with every name in it, so a shard whose directory
looks as it did is not read.  What an entry says is kept by the groups of its
key document, each value once: entries share nearly all of them.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import json
import os
import sqlite3
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from artifact_cache.entry import MAX_STORED_BYTES
from artifact_cache.explain import differences
from artifact_cache.files import bounded_bytes
from artifact_cache.kinds import LargerRule
from artifact_cache.sqlite_files import open_derived, remove_derived
from artifact_cache.strict_json import parse_json, parse_object

FORM = 2  # another one is made anew
SETTLED_NS = 2_000_000_000  # a directory changed twice within one tick looks unchanged
LARGER_CANDIDATES = 64

_TABLES = """
CREATE TABLE shards (kind TEXT, shard TEXT, ino INTEGER, mtime_ns INTEGER,
                     PRIMARY KEY (kind, shard)) WITHOUT ROWID;
CREATE TABLE groups (id INTEGER PRIMARY KEY, name TEXT, digest BLOB UNIQUE, value TEXT);
CREATE TABLE entries (kind TEXT, key TEXT, ino INTEGER, mtime_ns INTEGER, groups BLOB,
                      built_at INTEGER, bytes INTEGER, build_s REAL, labels TEXT,
                      PRIMARY KEY (kind, key)) WITHOUT ROWID
"""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of an entry for lists."""

    kind: str
    key: str
    built_at: int
    bytes: int
    build_s: float
    labels: Mapping[str, str]


class Index:
    """Answers questions about the entries below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def summaries(self, kind: str | None = None) -> tuple[Summary, ...]:
        """List entries, newest first."""

        def ask(database: sqlite3.Connection) -> tuple[Summary, ...]:
            rows = database.execute(
                "SELECT kind, key, built_at, bytes, build_s, labels FROM entries"
                " WHERE ?1 IS NULL OR kind = ?1 ORDER BY built_at DESC, key",
                (kind,),
            )
            return tuple(
                Summary(
                    kind=row[0],
                    key=row[1],
                    built_at=row[2],
                    bytes=row[3],
                    build_s=row[4],
                    labels=_parsed(row[5]),
                )
                for row in rows
            )

        return self._ask(kind, ask)

    def nearest(self, wanted: Mapping[str, Any], limit: int) -> tuple[str, ...]:
        """Return the keys with the fewest differing fields, nearest first, not the key itself."""

        def ask(database: sqlite3.Connection) -> tuple[str, ...]:
            distances = {
                number: sum(1 for _ in differences(wanted.get(name), value))
                for number, name, value in _groups(database, wanted["kind"])
            }
            ranked = (
                (sum(map(distances.__getitem__, _numbers(groups))), -built_at, key)
                for key, groups, built_at in _rows(database, wanted["kind"])
            )
            # Two more than asked: some may not be readable any more.
            nearest = heapq.nsmallest(limit + 2, (row for row in ranked if row[0] > 0))
            return tuple(key for _, _, key in nearest)

        return self._ask(str(wanted["kind"]), ask)

    def larger(self, wanted: Mapping[str, Any], rule: LargerRule) -> tuple[str, ...]:
        """Return the keys of entries that dominate what is wanted, the cheapest first."""

        def ask(database: sqlite3.Connection) -> tuple[str, ...]:
            equal: set[int] = set()  # groups
            costs: dict[int, tuple[int, ...]] = {}  # of groups that are larger
            for number, name, value in _groups(database, wanted["kind"]):
                if not any(differences(wanted.get(name), value)):
                    equal.add(number)
                elif name == rule.field and name in wanted and rule.covers(value, wanted[name]):
                    costs[number] = rule.cost(value)
            candidates = (
                (costs[larger.pop()], key)
                for key, groups, _ in _rows(database, wanted["kind"])
                if len(larger := set(_numbers(groups)) - equal) == 1 and larger <= costs.keys()
            )
            return tuple(key for _, key in heapq.nsmallest(LARGER_CANDIDATES, candidates))

        return self._ask(str(wanted["kind"]), ask)

    def _ask(self, kind: str | None, ask: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
        path = self._root / "index.sqlite"
        for place in (path, path, None):
            try:
                with closing(
                    # It can be made anew: nothing is synced.
                    open_derived(place, _TABLES, FORM, wait_s=5, synchronous="OFF")
                ) as database:
                    _refresh(database, self._root, kind)
                    return ask(database)
            except sqlite3.OperationalError:  # busy, read-only or full: it may be fine for others
                continue
            except (sqlite3.Error, ValueError, KeyError, TypeError):
                remove_derived(path)
        raise OSError("the index can be kept neither on the disk nor in memory")


def _refresh(database: sqlite3.Connection, root: Path, kind: str | None) -> None:
    """Update the index with changes since the last query."""
    known = {
        (row[0], row[1]): (row[2], row[3])
        for row in database.execute("SELECT kind, shard, ino, mtime_ns FROM shards")
    }
    kinds = [kind] if kind else sorted({name for name, _ in known} | set(_names(root / "ac")))
    with database:
        for one in kinds:
            shards = {entry.name: entry.stat() for entry in _scan(root / "ac" / one)}
            for shard, status in shards.items():
                if known.get((one, shard)) != (status.st_ino, status.st_mtime_ns):
                    _refresh_shard(database, root / "ac" / one / shard, status)
            for gone in {shard for name, shard in known if name == one} - set(shards):
                database.execute("DELETE FROM shards WHERE kind = ? AND shard = ?", (one, gone))
                database.execute(
                    "DELETE FROM entries WHERE kind = ? AND substr(key, 1, 2) = ?", (one, gone)
                )


def _refresh_shard(database: sqlite3.Connection, path: Path, status: os.stat_result) -> None:
    kind, shard = path.parent.name, path.name
    before = time.time_ns()
    known = {
        row[0]: (row[1], row[2])
        for row in database.execute(
            "SELECT key, ino, mtime_ns FROM entries WHERE kind = ? AND key >= ? AND key < ?",
            (kind, shard, f"{shard}g"),
        )
    }
    there = set()
    for found in _scan(path):
        key, dot, suffix = found.name.partition(".")
        if (dot, suffix) != (".", "json"):
            continue
        looks = found.stat(follow_symlinks=False)
        there.add(key)
        if known.get(key) != (looks.st_ino, looks.st_mtime_ns):
            there -= _add(database, kind, key, Path(found.path), looks)
    for key in set(known) - there:
        database.execute("DELETE FROM entries WHERE kind = ? AND key = ?", (kind, key))
    if before - status.st_mtime_ns > SETTLED_NS:
        database.execute(
            "INSERT OR REPLACE INTO shards VALUES (?, ?, ?, ?)",
            (kind, shard, status.st_ino, status.st_mtime_ns),
        )


def _add(
    database: sqlite3.Connection, kind: str, key: str, path: Path, looks: os.stat_result
) -> set[str]:
    """Add an entry; return its key when nothing in it can be read."""
    try:
        entry = _peek(bounded_bytes(path, MAX_STORED_BYTES))
        groups = array("I", [_group(database, *group) for group in entry["keydoc"].items()])
        row = (
            kind,
            key,
            looks.st_ino,
            looks.st_mtime_ns,
            groups.tobytes(),
            int(entry["built_at"]),
            sum(int(output["size"]) for output in entry["outputs"]),
            float(entry["build_s"]),
            json.dumps(entry.get("labels", {})),
        )
        database.execute("INSERT OR REPLACE INTO entries VALUES (?,?,?,?,?,?,?,?,?)", row)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return {key}
    return set()


def _peek(data: bytes) -> dict[str, Any]:
    """Read an entry without judging it: whoever uses it will."""
    plain = parse_object(data, max_bytes=MAX_STORED_BYTES)
    if "payloadType" in plain:
        plain = parse_object(base64.b64decode(plain["payload"]), max_bytes=MAX_STORED_BYTES)
    return plain


def _group(database: sqlite3.Connection, name: str, value: Any) -> int:
    text = json.dumps([name, value], sort_keys=True)  # canonical enough for an index, and fast
    digest = hashlib.sha256(text.encode("ascii")).digest()
    row = database.execute("SELECT id FROM groups WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        row = database.execute(
            "INSERT INTO groups (name, digest, value) VALUES (?, ?, ?) RETURNING id",
            (name, digest, json.dumps(value)),
        ).fetchone()
    return int(row[0])


def _rows(database: sqlite3.Connection, kind: str) -> Iterator[tuple[str, bytes, int]]:
    yield from database.execute("SELECT key, groups, built_at FROM entries WHERE kind = ?", (kind,))


def _groups(database: sqlite3.Connection, kind: str) -> Iterator[tuple[int, str, Any]]:
    used = {number for _, groups, _ in _rows(database, kind) for number in _numbers(groups)}
    for number, name, value in database.execute("SELECT id, name, value FROM groups"):
        if number in used:
            yield number, name, _parsed(value)


def _parsed(text: str) -> Any:
    """Parse a value of the database; raise ValueError, so that a damaged one is made anew."""
    return parse_json(text.encode("utf-8", "surrogatepass"), max_bytes=MAX_STORED_BYTES)


def _numbers(groups: bytes) -> Sequence[int]:
    return array("I", groups)


def _scan(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _names(directory: Path) -> list[str]:
    return [entry.name for entry in _scan(directory)]
