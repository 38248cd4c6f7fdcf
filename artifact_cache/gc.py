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

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from artifact_cache.entry import MAX_STORED_BYTES
from artifact_cache.errors import StoreUnavailable
from artifact_cache.files import NotRegular, bounded_bytes, said, sync
from artifact_cache.gc_entries import (
    SeenBlob,
    SeenEntry,
    held_in_quarantine,
    is_pinned,
    looks_of,
    seen_entry,
)
from artifact_cache.gc_litter import Limits, sweep
from artifact_cache.pins import Pin, Pins
from artifact_cache.stores.local import LocalStore

BATCH = 100  # files removed while everybody waits
LOCK_WAIT_S = 300.0
BUSY = "publishers or readers were busy all the time; try again"
DAY_S = 24 * 3600.0

Reason = Literal["age", "size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GcPolicy:
    """Limits of a collection. None: unlimited."""

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
    model: str  # its label; "" without one
    reason: Reason
    bytes: int  # of blobs that nothing else names
    used_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Result of a collection, also of one with `dry_run`."""

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
        """Return the bytes per kind and model."""
        sums: Counter[tuple[str, str]] = Counter()
        for one in self.removed:
            sums[one.kind, one.model] += one.bytes
        return dict(sums)


class _Collection:
    def __init__(self, store: LocalStore, policy: GcPolicy, started: float) -> None:
        self.store = store
        self.policy = policy
        self.started = started
        self.limit = started - policy.grace_s
        self.pins = Pins(store)
        self.problem = ""

    # --- looking, without a lock

    def entries(self, blobs: Container[str]) -> Iterator[SeenEntry]:
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
            yield seen_entry(path, status, data, used_at, blobs)

    def blobs(self) -> dict[str, SeenBlob]:
        found = {}
        for path in self.store.root.glob("cas/sha256/??/*"):
            with suppress(OSError):
                status = path.lstat()
                changed_at = max(status.st_mtime, status.st_ctime)
                found[path.name] = SeenBlob(path, status.st_size, looks_of(status), changed_at)
        return found

    def let_publishers_finish(self) -> None:
        """Wait until each blob seen so far is named by its entry, if one was being published.

        Whoever publishes after this replaces the blobs it names.
        """
        with self.store.collecting(LOCK_WAIT_S) as alone:
            if not alone:
                self.problem = BUSY

    def limits_of_litter(self) -> Limits:
        return Limits(
            any=self.limit,
            partial=self.started - self.policy.partial_s,
            quarantine=self.started - self.policy.quarantine_s,
            failures=self.started - self.policy.failures_s,
        )

    def _used_at(self, key: str, published_at: float) -> float:
        try:
            used_at = self.store.use_path(key).lstat().st_mtime
        except OSError:
            used_at = published_at
        return min(max(used_at, published_at), self.started)  # a clock may have been ahead

    def choose(
        self, entries: Sequence[SeenEntry], blobs: Mapping[str, SeenBlob], pins: Iterable[Pin]
    ) -> list[tuple[SeenEntry, Reason]]:
        """Choose the entries that go, the least recently used first."""
        pins = tuple(pins)
        candidates = sorted(
            (
                entry
                for entry in entries
                if entry.removable and entry.used_at < self.limit and not is_pinned(entry, pins)
            ),
            key=lambda entry: (entry.used_at, entry.key),
        )
        oldest = self.policy.max_age_s
        doomed: list[tuple[SeenEntry, Reason]] = [
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

    def remove_entries(self, doomed: Sequence[tuple[SeenEntry, Reason]]) -> set[Path]:
        removed: set[Path] = set()

        def remove(batch: Sequence[tuple[SeenEntry, Reason]]) -> None:
            pins = tuple(self.pins.all().values())  # whoever pinned meanwhile has returned
            for entry, _ in batch:
                if is_pinned(entry, pins) or self._changed(entry):
                    continue
                entry.path.unlink(missing_ok=True)
                removed.add(entry.path)
            for directory in {path.parent for path in removed}:
                sync(directory)

        self._in_batches(doomed, remove)
        return removed

    def remove_blobs(self, blobs: Sequence[SeenBlob]) -> list[SeenBlob]:
        removed: list[SeenBlob] = []

        def remove(batch: Sequence[SeenBlob]) -> None:
            for blob in batch:
                with suppress(FileNotFoundError):
                    if looks_of(blob.path.lstat()) == blob.looks:
                        blob.path.unlink()
                        self.store.stamp_path(blob.path.name).unlink(missing_ok=True)
                        removed.append(blob)

        self._in_batches(blobs, remove)
        return removed

    def _changed(self, entry: SeenEntry) -> bool:
        try:
            status = entry.path.lstat()
        except OSError:
            return True
        used_at = self._used_at(entry.key, status.st_mtime)
        return looks_of(status) != entry.looks or used_at > entry.used_at

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
        held, aside = held_in_quarantine(store, pins)
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
        kept = {entry.key for entry in entries if entry.path not in removed}
        litter = sweep(store, kept, aside, run.limits_of_litter(), dry_run=dry_run)
    except OSError as error:
        raise StoreUnavailable(str(store.root), said(error)) from error
    return _report(run, entries, blobs, doomed, removed, gone, pins, litter, dry_run=dry_run)


def _report(
    run: _Collection,
    entries: Sequence[SeenEntry],
    blobs: Mapping[str, SeenBlob],
    doomed: Sequence[tuple[SeenEntry, Reason]],
    removed: set[Path],
    gone: Sequence[SeenBlob],
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
        pinned_entries=sum(is_pinned(entry, pins) for entry in kept),
        problem=run.problem,
    )
