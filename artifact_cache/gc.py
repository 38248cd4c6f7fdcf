"""Garbage collection of a local store: by age and size, least recently used first.

Safe beside publishers and readers.  What may go is found without a lock: first
the blobs, then, once every publisher of that moment is done, the entries.  Then
the lock is taken alone for a moment at a time, and each file is looked at again
before it is removed:

- an entry, unless it was used or pinned meanwhile;
- a blob that neither a remaining entry names nor an entry in quarantine that a pin
  holds, unless it changed meanwhile.  Publishing replaces the blobs it names, so a
  blob that looks as it did is named by no entry that came later.

No clock has a part in that.  Besides, nothing goes that is younger than the
start less a grace.  All entries go before the first blob.  Entries of later
versions are never removed, and every digest that stands anywhere in them counts
as named.
"""

from __future__ import annotations

import base64
import fcntl
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from artifact_cache.entry import MAX_STORED_BYTES, PAYLOAD_TYPE, SCHEMA, parse_entry
from artifact_cache.errors import MalformedEntry, NewerEntry, StoreUnavailable
from artifact_cache.files import NotRegular, bounded_bytes, said, sync
from artifact_cache.pins import Pin, Pins
from artifact_cache.stores.local import LocalStore
from artifact_cache.strict_json import parse_object

BATCH = 100  # files removed while everybody waits
LOCK_WAIT_S = 300.0
BUSY = "publishers or readers were busy all the time; try again"
DAY_S = 24 * 3600.0

_ASIDE = re.compile(r".*-([0-9a-f]{64})-[0-9a-f]{8}\.(?:json|blob)")  # a name in quarantine
_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")

Reason = Literal["age", "size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GcPolicy:
    """What may stay. None is no limit."""

    max_bytes: int | None = None
    max_age_s: float | None = None  # since the last use
    grace_s: float = 3600.0  # longer than any publisher takes between two blobs
    partial_s: float = 3 * DAY_S  # broken-off transfers, which somebody may take up again
    quarantine_s: float = 7 * DAY_S
    failures_s: float = 30 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """An entry that went, or would go."""

    kind: str
    key: str
    model: str  # its label, else the start of the architecture's digest
    reason: Reason
    bytes: int  # of blobs that nothing else names
    used_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a collection did, or with `dry_run` would do."""

    dry_run: bool
    removed: tuple[Removed, ...]
    blobs: int
    bytes: int  # space comes free unless a file handed out earlier shares it
    orphan_bytes: int  # of these, blobs that no entry named before
    litter: int  # files of killed processes, old quarantine, old failures
    kept_entries: int
    kept_bytes: int
    pinned_entries: int
    problem: str = ""  # why not everything was done

    def by_model(self) -> dict[tuple[str, str], int]:
        """Give the bytes per kind and model."""
        sums: Counter[tuple[str, str]] = Counter()
        for one in self.removed:
            sums[one.kind, one.model] += one.bytes
        return dict(sums)


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    kind: str
    key: str
    looks: tuple[int, int]  # inode and ctime: whether it is still this one
    used_at: float
    blobs: frozenset[str]  # of those seen before
    model: str
    removable: bool

    def says(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Give its key document and labels as they stand now; 100,000 of them are much to keep."""
        plain, _ = _peek(bounded_bytes(self.path, MAX_STORED_BYTES))
        return _mapping(plain, "keydoc"), _mapping(plain, "labels")


@dataclass(frozen=True, slots=True)
class _Blob:
    path: Path
    size: int
    looks: tuple[int, int]
    changed_at: float


class _Collection:
    def __init__(self, store: LocalStore, policy: GcPolicy, started: float) -> None:
        self.store = store
        self.policy = policy
        self.started = started
        self.limit = started - policy.grace_s
        self.pins = Pins(store)
        self.problem = ""

    # --- looking, without a lock

    def entries(self, blobs: Container[str]) -> Iterator[_Entry]:
        for path in self.store.root.glob("ac/*/??/*.json"):
            try:
                status = path.lstat()
                data = bounded_bytes(path, MAX_STORED_BYTES)
            except FileNotFoundError:
                continue
            except NotRegular:
                data = b""  # names nothing; whoever asks for it sets it aside
            except OSError as error:
                # Which blobs it names is not known now, so none may go.
                self.problem = f"{path.name[:12]} cannot be read: {said(error)}"
                data = b""
            used_at = self._used_at(path.stem, status.st_mtime)
            yield _entry(path, status, data, used_at, blobs)

    def held_in_quarantine(self, pins: Sequence[Pin]) -> tuple[frozenset[str], frozenset[Path]]:
        """Return the digests that pinned entries in quarantine name, and the files to keep there.

        What was set aside by mistake comes back by a check: its blobs must be there then.
        """
        digests: set[str] = set()
        kept: set[Path] = set()
        if not pins:
            return frozenset(), frozenset()
        for path in self.store.root.glob("quarantine/*.json"):
            data = b""
            with suppress(OSError):
                data = bounded_bytes(path, MAX_STORED_BYTES)
            plain, text = _peek(data)
            key = found[1] if (found := _ASIDE.fullmatch(path.name)) else str(plain.get("key"))
            document, labels = _mapping(plain, "keydoc"), _mapping(plain, "labels")
            if any(pin.holds(key, document, labels) for pin in pins):
                digests |= {digest.decode("ascii") for digest in _DIGEST.findall(text)}
                kept.add(path)
        for path in self.store.root.glob("quarantine/*.blob"):
            if (found := _ASIDE.fullmatch(path.name)) and found[1] in digests:
                kept.add(path)
        return frozenset(digests), frozenset(kept)

    def blobs(self) -> dict[str, _Blob]:
        found = {}
        for path in self.store.root.glob("cas/sha256/??/*"):
            with suppress(OSError):
                status = path.lstat()
                changed_at = max(status.st_mtime, status.st_ctime)
                found[path.name] = _Blob(path, status.st_size, _looks(status), changed_at)
        return found

    def let_publishers_finish(self) -> None:
        """Wait until each blob seen so far is named by its entry, if one was on its way.

        Whoever publishes after this replaces the blobs it names.
        """
        with self.store.collecting(LOCK_WAIT_S) as alone:
            if not alone:
                self.problem = BUSY

    def _used_at(self, key: str, published_at: float) -> float:
        try:
            used_at = self.store.use_path(key).lstat().st_mtime
        except OSError:
            used_at = published_at
        return min(max(used_at, published_at), self.started)  # a clock may have been ahead

    def choose(
        self, entries: Sequence[_Entry], blobs: Mapping[str, _Blob], pins: Iterable[Pin]
    ) -> list[tuple[_Entry, Reason]]:
        """Say which entries go, the least recently used first."""
        pins = tuple(pins)
        candidates = sorted(
            (
                entry
                for entry in entries
                if entry.removable and entry.used_at < self.limit and not _pinned(entry, pins)
            ),
            key=lambda entry: (entry.used_at, entry.key),
        )
        oldest = self.policy.max_age_s
        doomed: list[tuple[_Entry, Reason]] = [
            (entry, "age")
            for entry in candidates
            if oldest is not None and entry.used_at < self.started - oldest
        ]
        if self.policy.max_bytes is None:
            return doomed
        gone = {entry.path for entry, _ in doomed}
        named = Counter(
            digest for entry in entries if entry.path not in gone for digest in entry.blobs
        )
        total = sum(blobs[digest].size for digest in named if digest in blobs)
        for entry in candidates[len(doomed) :]:
            if total <= self.policy.max_bytes:
                break
            doomed.append((entry, "size"))
            named.subtract(entry.blobs)
            total -= sum(
                blobs[digest].size
                for digest in entry.blobs
                if named[digest] == 0 and digest in blobs
            )
        return doomed

    # --- removing, under the lock, a batch at a time

    def remove_entries(self, doomed: Sequence[tuple[_Entry, Reason]]) -> set[Path]:
        removed: set[Path] = set()

        def remove(batch: Sequence[tuple[_Entry, Reason]]) -> None:
            pins = tuple(self.pins.all().values())  # whoever pinned meanwhile has returned
            for entry, _ in batch:
                if _pinned(entry, pins) or self._changed(entry):
                    continue
                entry.path.unlink(missing_ok=True)
                removed.add(entry.path)
            for directory in {path.parent for path in removed}:
                sync(directory)

        self._in_batches(doomed, remove)
        return removed

    def remove_blobs(self, blobs: Sequence[_Blob]) -> list[_Blob]:
        removed: list[_Blob] = []

        def remove(batch: Sequence[_Blob]) -> None:
            for blob in batch:
                with suppress(FileNotFoundError):
                    if _looks(blob.path.lstat()) == blob.looks:
                        blob.path.unlink()
                        self.store.stamp_path(blob.path.name).unlink(missing_ok=True)
                        removed.append(blob)

        self._in_batches(blobs, remove)
        return removed

    def _changed(self, entry: _Entry) -> bool:
        try:
            status = entry.path.lstat()
        except OSError:
            return True
        used_at = self._used_at(entry.key, status.st_mtime)
        return _looks(status) != entry.looks or used_at > entry.used_at

    def _in_batches(self, items: Sequence[Any], remove: Callable[[Sequence[Any]], None]) -> None:
        for start in range(0, len(items), BATCH):
            if self.problem:
                return
            with self.store.collecting(LOCK_WAIT_S) as alone:
                if not alone:
                    self.problem = BUSY
                    return
                remove(items[start : start + BATCH])


def collect(
    store: LocalStore,
    policy: GcPolicy,
    *,
    dry_run: bool = False,
    clock: Callable[[], float] = time.time,
) -> Collected:
    """Remove what the policy does not let stay, and the litter of killed processes.

    Raises `UnusablePin` before anything is removed when a pin cannot be read,
    and `StoreUnavailable`.
    """
    capability = store.capability()
    if capability.mode != "read-write":
        raise StoreUnavailable(str(store.root), capability.reason)
    run = _Collection(store, policy, clock())
    try:
        pins = tuple(run.pins.all().values())
        blobs = run.blobs()
        if not dry_run:
            run.let_publishers_finish()
        entries = tuple(run.entries(blobs))
        doomed = run.choose(entries, blobs, pins)
        removed = {entry.path for entry, _ in doomed} if dry_run else run.remove_entries(doomed)
        held, aside = run.held_in_quarantine(pins)
        named = {digest for entry in entries if entry.path not in removed for digest in entry.blobs}
        named |= held
        unnamed = {
            digest: blob
            for digest, blob in blobs.items()
            if digest not in named and blob.changed_at < run.limit
        }
        if run.problem:
            unnamed = {}
        gone = list(unnamed.values()) if dry_run else run.remove_blobs(list(unnamed.values()))
        litter = _sweep(run, entries, removed, aside, dry_run=dry_run)
    except OSError as error:
        raise StoreUnavailable(str(store.root), said(error)) from error
    return _report(run, entries, blobs, doomed, removed, gone, pins, litter, dry_run=dry_run)


def _report(
    run: _Collection,
    entries: Sequence[_Entry],
    blobs: Mapping[str, _Blob],
    doomed: Sequence[tuple[_Entry, Reason]],
    removed: set[Path],
    gone: Sequence[_Blob],
    pins: Sequence[Pin],
    litter: int,
    *,
    dry_run: bool,
) -> Collected:
    sizes = {blob.path.name: blob.size for blob in gone}
    counted: set[str] = set()
    rows = []
    for entry, reason in doomed:
        if entry.path in removed:
            own = (entry.blobs & sizes.keys()) - counted
            counted |= own
            rows.append(
                Removed(
                    kind=entry.kind,
                    key=entry.key,
                    model=entry.model,
                    reason=reason,
                    bytes=sum(sizes[digest] for digest in own),
                    used_at=entry.used_at,
                )
            )
    freed = sum(sizes.values())
    kept = [entry for entry in entries if entry.path not in removed]
    return Collected(
        dry_run=dry_run,
        removed=tuple(rows),
        blobs=len(sizes),
        bytes=freed,
        orphan_bytes=freed - sum(row.bytes for row in rows),
        litter=litter,
        kept_entries=len(kept),
        kept_bytes=sum(blob.size for blob in blobs.values()) - freed,
        pinned_entries=sum(_pinned(entry, pins) for entry in kept),
        problem=run.problem,
    )


# --- litter


def _sweep(
    run: _Collection,
    entries: Sequence[_Entry],
    removed: set[Path],
    aside: frozenset[Path],
    *,
    dry_run: bool,
) -> int:
    """Remove what nobody will come back for; give the number of files."""
    root = run.store.root
    keys = {entry.key for entry in entries if entry.path not in removed}
    old = list(_old(root.glob("use/??/*"), run.limit, lambda path: path.name not in keys))
    old += _old(
        root.glob("stamp/??/*"), run.limit, lambda path: not run.store.blob_path(path.name).exists()
    )
    old += _old(root.glob("neg/*/??/*"), run.started - run.policy.failures_s)
    old += _old(root.glob("neg/*/??/*.json.*"), run.limit)
    old += _old(root.glob("pins/.*"), run.limit)
    old += _old(root.glob("partial/*"), run.started - run.policy.partial_s, _is_unlocked)
    old += _old(
        root.glob("quarantine/*"),
        run.started - run.policy.quarantine_s,
        lambda path: path not in aside,
    )
    old += _old(root.glob("*.new"), run.limit)
    stray = list(_old(root.glob("tmp/*"), run.limit, _is_unlocked))
    if not dry_run:
        for path in (*old, *stray):
            with suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        run.store.reap()
    return len(set(old)) + len(stray)


def _old(
    paths: Iterable[Path], limit: float, condition: Callable[[Path], bool] | None = None
) -> Iterator[Path]:
    for path in paths:
        with suppress(OSError):
            status = path.lstat()
            old = max(status.st_mtime, status.st_ctime) < limit
            if old and (condition is None or condition(path)):
                yield path


def _is_unlocked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


# --- reading entries


def _entry(
    path: Path, status: os.stat_result, data: bytes, used_at: float, blobs: Container[str]
) -> _Entry:
    """Take an entry in, whatever it is: it names every digest that stands in it.

    It is read and not judged, which would take many times as long: a damaged
    entry ages like any other until somebody asks for it, and pins hold it for
    what it still says.
    """
    plain, text = _peek(data)
    named = (found.decode("ascii") for found in _DIGEST.findall(text))
    return _Entry(
        path=path,
        kind=path.parent.parent.name,
        key=path.stem,
        looks=_looks(status),
        used_at=used_at,
        blobs=frozenset(digest for digest in named if digest in blobs),
        model=_model(_mapping(plain, "keydoc"), _mapping(plain, "labels")),
        removable=bool(data) and (plain.get("schema") == SCHEMA or not _is_newer(data)),
    )


def _peek(data: bytes) -> tuple[Mapping[str, Any], bytes]:
    """Give what an entry says, signed or not, and all the text that digests may stand in."""
    plain: dict[str, Any] = {}
    with suppress(ValueError, KeyError, TypeError):
        plain = parse_object(data, max_bytes=MAX_STORED_BYTES)
        if "payload" in plain:
            payload = base64.b64decode(plain["payload"])
            data += payload
            # The envelope's type says what the payload is; only our own is looked into.
            ours, plain = plain["payloadType"] == PAYLOAD_TYPE, {}
            plain = parse_object(payload, max_bytes=MAX_STORED_BYTES) if ours else {}
    return plain, data


def _mapping(plain: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = plain.get(name)
    return value if isinstance(value, Mapping) else {}


def _is_newer(data: bytes) -> bool:
    try:
        parse_entry(data)
    except NewerEntry:
        return True
    except MalformedEntry:
        pass
    return False


def _pinned(entry: _Entry, pins: Iterable[Pin]) -> bool:
    if any(entry.key in pin.keys for pin in pins):
        return True
    asking = [pin for pin in pins if pin.where or pin.labels]
    try:
        document, labels = entry.says() if asking else ({}, {})
    except FileNotFoundError:
        return False
    except OSError:
        return True  # nobody knows what it says
    return any(pin.holds(entry.key, document, labels) for pin in asking)


def _model(document: Mapping[str, Any], labels: Mapping[str, Any]) -> str:
    if label := labels.get("model"):
        return str(label)
    graph = document.get("graph")
    return str(graph.get("architecture", ""))[:12] if isinstance(graph, Mapping) else ""


def _looks(status: os.stat_result) -> tuple[int, int]:
    return status.st_ino, status.st_ctime_ns
