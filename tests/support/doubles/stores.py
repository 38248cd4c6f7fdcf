"""Stores of the artifact cache for tests: one in memory, and one that may only be read."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from artifact_cache.entry import Entry, entry_bytes, parse_entry
from artifact_cache.errors import Corrupt, MalformedEntry, StoreUnavailable, Unpublishable
from artifact_cache.files import sealed_mode
from artifact_cache.store import Address, CacheStore, Capability, StoredEntry


class MemoryStore:
    """Keeps what other stores keep, as the same bytes, so that they can be damaged alike."""

    def __init__(self) -> None:
        self.entries: dict[Address, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self._changing = threading.Lock()

    def capability(self) -> Capability:
        """Always works."""
        return Capability("read-write")

    def get(self, address: Address) -> StoredEntry | None:
        """Find an entry; a broken one is dropped."""
        data = self.entries.get(address)
        if data is None:
            return None
        try:
            entry = parse_entry(data)
            if (entry.kind, entry.key) != (address.kind, address.key):
                raise MalformedEntry("it belongs to another address")
        except MalformedEntry as error:
            self.entries.pop(address, None)
            raise Corrupt(f"entry {address.key[:12]}", error.message) from error
        return StoredEntry(entry, partial(self._extract, address, entry))

    def put(self, entry: Entry, directory: Path) -> bool:
        """Copy the files in; the entry becomes visible last."""
        data = entry_bytes(entry)
        for output in entry.outputs:
            blob = (directory / output.path).read_bytes()
            if hashlib.sha256(blob).hexdigest() != output.sha256:
                raise Unpublishable(f"{output.path!r} changed while it was published")
            self.blobs[output.sha256] = blob
        with self._changing:
            return self.entries.setdefault(Address(entry.kind, entry.key), data) is data

    def list(self, kind: str | None = None) -> Iterator[Entry]:
        """Yield entries in the order they came."""
        for address, data in list(self.entries.items()):
            if kind in (None, address.kind):
                try:
                    yield parse_entry(data)
                except MalformedEntry:
                    continue

    def delete(self, address: Address) -> bool:
        """Forget the entry; blobs stay, as they do elsewhere."""
        return self.entries.pop(address, None) is not None

    def _extract(self, address: Address, entry: Entry, into: Path) -> None:
        for output in entry.outputs:
            blob = self.blobs.get(output.sha256)
            if blob is None or hashlib.sha256(blob).hexdigest() != output.sha256:
                self.entries.pop(address, None)
                self.blobs.pop(output.sha256, None)
                raise Corrupt(f"blob {output.sha256[:12]} ({output.path})", "is lost or damaged")
            target = into / output.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(blob)
            target.chmod(sealed_mode(output))


class ReadOnlyStore:
    """Wraps a store and lets nothing be published or deleted.

    What is found broken is still set aside by the store inside: that is how a
    reader keeps it from being found again.
    """

    def __init__(self, inner: CacheStore, reason: str = "it was opened for reading") -> None:
        self._inner = inner
        self._reason = reason

    def capability(self) -> Capability:
        """Reading works if it works inside."""
        inside = self._inner.capability()
        return inside if inside.mode == "off" else Capability("read-only", self._reason)

    def get(self, address: Address) -> StoredEntry | None:
        """Find what the store inside finds."""
        return self._inner.get(address)

    def put(self, entry: Entry, directory: Path) -> bool:
        """Refuse."""
        raise StoreUnavailable("read-only", self._reason)

    def list(self, kind: str | None = None) -> Iterator[Entry]:
        """Yield what the store inside yields."""
        return self._inner.list(kind)

    def delete(self, address: Address) -> bool:
        """Refuse."""
        raise StoreUnavailable("read-only", self._reason)
