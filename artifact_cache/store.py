"""Protocol of stores. Stores hold entries and blobs and know nothing of builds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from artifact_cache.entry import Entry
from artifact_cache.key import KeyDocument, key_of


@dataclass(frozen=True, slots=True)
class Address:
    """Address of an entry in any store."""

    kind: str
    key: str


def address_of(document: KeyDocument) -> Address:
    """Return the one place an artifact of these inputs can be."""
    return Address(document.kind, key_of(document))


@dataclass(frozen=True, slots=True)
class Capability:
    """Access that a store allows, tried once. The reason is for people."""

    mode: Literal["read-write", "read-only", "off"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry that was found, and the way to its files.

    `extract` puts every file into an empty directory, read-only, each compared
    with its digest, or raises `Corrupt` or `StoreUnavailable`; then the
    directory may hold some of them.
    """

    entry: Entry
    extract: Callable[[Path], None]
    tier: str = "local"  # where it was found, for statistics


class CacheStore(Protocol):
    """Store of entries. A process that is killed in any of these methods does no harm."""

    def get(self, address: Address) -> StoredEntry | None:
        """Find an entry that belongs to its address. None means it is not there.

        Raises `Corrupt` after setting a broken one aside, `NewerEntry`, or
        `StoreUnavailable`.
        """
        ...

    def put(self, entry: Entry, directory: Path) -> bool:
        """Publish files of `directory`: all blobs first, the entry last and atomically.

        False means another entry was there; it stays.  The files are given
        away: they become read-only and may share storage with the store.
        Raises `StoreUnavailable`; then nothing can be found that was not before.
        """
        ...

    def list(self, kind: str | None = None) -> Iterator[Entry]:
        """Yield readable entries in no order, of one kind or all; skip the others."""
        ...

    def delete(self, address: Address) -> bool:
        """Delete an entry. False: there was none. Its blobs may stay for a while."""
        ...

    def capability(self) -> Capability:
        """Return what works, and why the rest does not. Never raises; asked once."""
        ...
