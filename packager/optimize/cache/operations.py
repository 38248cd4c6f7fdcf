"""Operations on the artifact cache: list, verify, clean up, copy, explain.

Functions take an opened cache and return values; `cli.cache` and its neighbours print them.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from artifact_cache import (
    Address,
    ArtifactCache,
    CacheError,
    Entry,
    Failure,
    Failures,
    Index,
    LocalStore,
    Pin,
    Pins,
    Signer,
    TrustedStore,
)
from artifact_cache.explain import Neighbour, find_nearest
from artifact_cache.files import open_regular
from artifact_cache.stats import StatsLog
from artifact_cache.store import StoredEntry
from artifact_cache.stores.archive import Imported, export_archive, import_archive
from artifact_cache.stores.tiered import TieredStore
from packager.core.cached import EntryDetails, EntrySummary, Statistics
from packager.core.errors import NotFound, UsageError
from packager.core.image import ImageRef
from packager.core.ports import ImageSink
from packager.optimize.steps.workspace import Workspace

SHORTEST = 4  # digits of a key that name it, when no other begins so
SHOWN = 12


class CachePlace:
    """An opened cache and the directory it keeps things in."""

    def __init__(self, root: Path, cache: ArtifactCache, signer: Signer | None = None) -> None:
        self.root = root
        self.cache = cache
        self.signer = signer
        self.store = LocalStore(root)
        self.failures = Failures(root / "neg")
        self.pins = Pins(self.store)

    # --- looking

    def listed(self, kind: str | None = None) -> tuple[EntrySummary, ...]:
        """List the entries here, newest first. Indexed entries are not read again."""
        if not self.root.is_dir():
            return ()
        found = Index(self.root).summaries(kind)
        everything = sorted(self._keys())
        pins = tuple(self.pins.all().values())
        return tuple(
            EntrySummary(
                kind=one.kind,
                key=one.key,
                shown=unique_start(one.key, everything),
                model=one.labels.get("model", ""),
                bytes=one.bytes,
                built_at=one.built_at,
                used_at=self._used_at(one.key, one.built_at),
                build_s=one.build_s,
                pinned=self._is_pinned(one.kind, one.key, pins),
                signed=self._is_signed(one.kind, one.key),
            )
            for one in found
        )

    def listed_with_shared(self, kind: str | None = None) -> tuple[EntrySummary, ...]:
        """List the entries here and those of shared stores, which are read one by one."""
        here = self.listed(kind)
        known = {(one.kind, one.key) for one in here}
        found = [one for one in self.cache.store.list(kind) if (one.kind, one.key) not in known]
        keys = sorted({*self._keys(), *(one.key for one in found)})
        return (
            *here,
            *(
                EntrySummary(
                    kind=one.kind,
                    key=one.key,
                    shown=unique_start(one.key, keys),
                    model=one.labels.get("model", ""),
                    bytes=sum({output.sha256: output.size for output in one.outputs}.values()),
                    built_at=one.built_at,
                    used_at=one.built_at,
                    build_s=one.build_s,
                    pinned=False,
                    signed=bool(one.signatures),
                    shared=True,
                )
                for one in found
            ),
        )

    def find(self, start: str) -> Address:
        """Find the one entry whose key begins so, here or in a shared store."""
        start = start.strip().lower().removeprefix("sha256:")
        kind, slash, digits = start.rpartition("/")
        if not digits or not set(digits) <= set("0123456789abcdef"):
            raise UsageError(
                f"{start!r} is not the start of a key",
                hint="`packager cache ls` shows the keys; a few digits are enough",
            )
        found = [
            address
            for address in self._addresses()
            if address.key.startswith(digits) and (not slash or address.kind == kind)
        ]
        if len(digits) < SHORTEST and len(found) != 1:
            raise UsageError(
                f"{digits!r} is too short to name a key", hint=f"give {SHORTEST} digits or more"
            )
        if len(found) > 1:
            raise UsageError(
                f"{digits!r} begins {len(found)} keys: "
                + ", ".join(f"{one.kind}/{one.key[:16]}" for one in found[:4]),
                hint="give more digits",
            )
        if found:
            return found[0]
        if (address := self._find_far(kind, digits)) is not None:
            return address
        raise NotFound(
            f"no entry's key begins with {digits!r}",
            hint="`packager cache ls` shows what there is",
        )

    def get(self, address: Address) -> StoredEntry:
        """Find an entry that may be used."""
        stored = self.cache.store.get(address)
        if stored is None:
            raise NotFound(
                f"entry {address.kind}/{address.key[:SHOWN]} is gone",
                hint="`packager cache ls` shows what there is",
            )
        return stored

    def show(self, address: Address) -> EntryDetails:
        """Return an entry's details, also of one that the trust policy refuses."""
        refused = ""
        try:
            stored = self.get(address)
        except CacheError as error:
            refused = error.message
            inner = self.store.get(address)
            if inner is None:
                raise
            stored = inner
        entry = stored.entry
        return EntryDetails(
            entry=entry,
            used_at=self._used_at(entry.key, entry.built_at),
            pins=self.pins_of(entry),
            tier=stored.tier,
            refused=refused,
        )

    def statistics(self) -> Statistics:
        """Count the entries here, and the operations on them."""
        capability = self.cache.store.capability()
        summaries = Index(self.root).summaries() if self.root.is_dir() else ()
        by_kind: dict[str, tuple[int, int]] = {}
        for one in summaries:
            entries, size = by_kind.get(one.kind, (0, 0))
            by_kind[one.kind] = (entries + 1, size + one.bytes)
        reason = f": {capability.reason}" if capability.reason else ""
        return Statistics(
            place=str(self.root),
            capability=f"{capability.mode}{reason}",
            entries=len(summaries),
            bytes=_size_of(self.root.glob("cas/sha256/??/*")),
            by_kind=dict(sorted(by_kind.items())),
            failures=sum(1 for _ in self.failures.list()),
            totals=StatsLog(self.root / "stats.jsonl").totals(),
        )

    def nearest(self, address: Address, limit: int) -> tuple[Neighbour, ...]:
        """Return the entries that differ least from a local one."""
        stored = self.get(address)
        keys = Index(self.root).nearest(stored.entry.keydoc, limit)
        entries = []
        for key in keys:
            with suppress(CacheError):
                if found := self.store.get(Address(address.kind, key)):
                    entries.append(found.entry)
        return find_nearest(stored.entry.keydoc, entries, limit)

    # --- pins

    def pins_of(self, entry: Entry) -> tuple[str, ...]:
        """Return the names of the pins that hold an entry."""
        return tuple(
            name
            for name, pin in self.pins.all().items()
            if pin.holds(entry.key, entry.keydoc, entry.labels)
        )

    def pin(self, name: str, keys: Sequence[str], labels: dict[str, str]) -> Pin:
        """Pin keys and the entries with these labels, in addition to the name's other pins."""
        before = self.pins.all().get(name, Pin())
        pin = Pin(
            keys=tuple(dict.fromkeys((*before.keys, *keys))),
            where=before.where,
            labels={**before.labels, **labels},
        )
        self.pins.add(name, pin)
        return pin

    def unpin(self, name: str) -> tuple[str, ...]:
        """Remove a pin by its name, or the pins that hold only this key."""
        pins = self.pins.all()
        if name in pins:
            self.pins.remove(name)
            return (name,)
        key = self.find(name).key
        mine = tuple(one for one, pin in pins.items() if key in pin.keys)
        if not mine:
            raise NotFound(f"there is no pin {name!r}", hint="`packager cache pins` shows them all")
        for one in mine:
            left = tuple(other for other in pins[one].keys if other != key)
            rest = pins[one].model_copy(update={"keys": left})
            if rest.is_empty():
                self.pins.remove(one)
            else:
                self.pins.add(one, rest)
        return mine

    # --- failures

    def find_failure(self, start: str) -> Failure | None:
        """Find the failure of a key that begins so."""
        found = [one for one in self.failures.list() if one.key.startswith(start.lower())]
        return found[0] if len(found) == 1 else None

    def clear_failures(self, starts: Sequence[str]) -> tuple[Failure, ...]:
        """Delete recorded failures: of keys that start with one of `starts`, or all."""
        starts = tuple(text.lower() for text in starts)
        known = tuple(self.failures.list())
        gone = tuple(one for one in known if not starts or one.key.startswith(starts))
        for text in starts:
            if not any(one.key.startswith(text) for one in gone):
                raise NotFound(
                    f"nothing that failed has a key that begins with {text!r}",
                    hint="`packager cache failures` shows what did",
                )
        for one in gone:
            self.failures.forget(Address(one.kind, one.key))
        return gone

    # --- handing on

    def export_to_archive(self, addresses: Sequence[Address], file: Path) -> int:
        """Write entries to a file; give its size."""
        with self.scratch() as scratch:
            return export_archive((self.get(one) for one in addresses), file, scratch)

    def export_to_images(
        self, addresses: Sequence[Address], sink_of: Callable[[Entry], ImageSink]
    ) -> tuple[ImageRef, ...]:
        """Write each entry as an artifact of its own."""
        from packager.optimize.cache.oci import export_entry

        refs = []
        for address in addresses:
            stored = self.get(address)
            with self.scratch() as scratch:
                refs.append(export_entry(stored, sink_of(stored.entry), scratch))
        return tuple(refs)

    def import_from_archive(self, reader: BinaryIO) -> Imported:
        """Publish the entries of an archive that the trust policy accepts."""
        with self.scratch() as scratch:
            return import_archive(reader, self.cache.store, scratch)

    def publish(self, entry: Entry, directory: Path) -> bool:
        """Publish an entry made elsewhere, signed if this machine signs; False: it exists."""
        signed = self.signer.sign(entry) if self.signer else entry
        return self.cache.store.put(signed, directory)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield an empty directory on the disk of the store, so that files can be linked."""
        if self.store.capability().mode == "read-write":
            with Workspace(self.root.parent / "work") as workspace:
                yield workspace.directory("cache")
            return
        with tempfile.TemporaryDirectory(prefix="packager-") as directory:
            yield Path(directory)

    # --- keys

    def _keys(self) -> Iterator[str]:
        return (address.key for address in self._addresses())

    def _addresses(self) -> Iterator[Address]:
        for path in self.root.glob("ac/*/??/*.json"):
            yield Address(path.parent.parent.name, path.stem)

    def _find_far(self, kind: str, digits: str) -> Address | None:
        """Look up a complete key in shared stores; these are not listed for a prefix."""
        if not isinstance(self.cache.store, TieredStore | TrustedStore) or len(digits) != 64:
            return None
        from packager.optimize.keys.documents import KINDS

        for one in (kind,) if kind else KINDS:
            with suppress(CacheError):
                if self.cache.store.get(Address(one, digits)) is not None:
                    return Address(one, digits)
        return None

    def _used_at(self, key: str, built_at: int) -> int:
        try:
            return int(self.store.use_path(key).lstat().st_mtime)
        except OSError:
            return built_at

    def _is_pinned(self, kind: str, key: str, pins: Iterable[Pin]) -> bool:
        if any(key in pin.keys for pin in pins):
            return True
        if not any(pin.where or pin.labels for pin in pins):
            return False
        with suppress(CacheError, OSError):
            if found := self.store.get(Address(kind, key)):
                entry = found.entry
                return any(pin.holds(key, entry.keydoc, entry.labels) for pin in pins)
        return False

    def _is_signed(self, kind: str, key: str) -> bool:
        with suppress(OSError):
            descriptor = open_regular(self.store.entry_path(Address(kind, key)))
            with os.fdopen(descriptor, "rb") as file:
                return file.read(32).startswith(b'{"payload"')
        return False


def unique_start(key: str, everything: Sequence[str], shortest: int = SHOWN) -> str:
    """Return the shortest unique prefix of a key in a sorted list."""
    place = bisect_left(everything, key)
    others = [*everything[max(0, place - 1) : place], *everything[place + 1 : place + 2]]
    needed = max((_common(key, other) + 1 for other in others if other != key), default=0)
    return key[: max(shortest, needed)]


def _common(one: str, other: str) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def _size_of(paths: Iterable[Path]) -> int:
    total = 0
    for path in paths:
        with suppress(OSError):
            total += path.lstat().st_size
    return total
