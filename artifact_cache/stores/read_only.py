"""A store that others fill: look, take, change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from artifact_cache.entry import Entry
from artifact_cache.errors import StoreUnavailable
from artifact_cache.store import Address, CacheStore, Capability, StoredEntry


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

    def put(self, entry: Entry, directory: Path) -> bool:  # noqa: ARG002
        """Refuse."""
        raise StoreUnavailable("read-only", self._reason)

    def list(self, kind: str | None = None) -> Iterator[Entry]:
        """Yield what the store inside yields."""
        return self._inner.list(kind)

    def delete(self, address: Address) -> bool:  # noqa: ARG002
        """Refuse."""
        raise StoreUnavailable("read-only", self._reason)
