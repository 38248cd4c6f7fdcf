"""A store of which only what is vouched for can be seen.

One per tier: an entry that is refused in a near tier must not hide a good one
in a far tier.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from artifact_cache.entry import Entry
from artifact_cache.errors import Untrusted
from artifact_cache.store import Address, CacheStore, Capability, StoredEntry
from artifact_cache.trust import Trust


class TrustedStore:
    """Wraps a store and refuses entries before any file of theirs can be taken."""

    def __init__(self, inner: CacheStore, trust: Trust) -> None:
        self.inner = inner
        self._trust = trust

    def capability(self) -> Capability:
        """Return what the store inside can do."""
        return self.inner.capability()

    def get(self, address: Address) -> StoredEntry | None:
        """Find what the store inside finds; raise `Untrusted` where nobody vouches for it."""
        stored = self.inner.get(address)
        if stored is not None:
            self._trust.check(stored.entry)
        return stored

    def put(self, entry: Entry, directory: Path) -> bool:
        """Publish what could be used again. A refused entry that is in the way is replaced."""
        self._trust.check(entry)
        if self.inner.put(entry, directory):
            return True
        try:
            self.get(Address(entry.kind, entry.key))
        except Untrusted:
            self.inner.delete(Address(entry.kind, entry.key))
            return self.inner.put(entry, directory)
        return False

    def list(self, kind: str | None = None) -> Iterator[Entry]:
        """Yield only what may be used."""
        for entry in self.inner.list(kind):
            with suppress(Untrusted):
                self._trust.check(entry)
                yield entry

    def delete(self, address: Address) -> bool:
        """Delete an entry, trusted or not."""
        return self.inner.delete(address)
