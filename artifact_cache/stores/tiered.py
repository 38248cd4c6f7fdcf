"""A store of one's own before stores that are shared.

Looking goes from near to far, and what is found far is kept near.  A far store
that fails costs a notice, never a build; one that may only be read changes
nothing for the others.

Who publishes first is decided by the first tier that is written through: all
hosts then use the same files.  A tier that is written back only gets a copy,
and two hosts may meanwhile use builds of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from artifact_cache.entry import Entry
from artifact_cache.errors import CacheError, NewerEntry, StoreUnavailable, Unpublishable
from artifact_cache.files import clear
from artifact_cache.results import ignore
from artifact_cache.store import Address, CacheStore, Capability, StoredEntry

Policy = Literal[
    "read-only",  # nothing is published there
    "write-through",  # publishing begins there, and whoever was first wins for all
    "write-back",  # a copy goes there in the end, if that works
]


@dataclass(frozen=True, slots=True)
class Tier:
    """A shared store, its name for people, and what may be written to it."""

    name: str
    store: CacheStore
    policy: Policy = "write-through"

    def is_written(self) -> bool:
        """Report whether it is meant to be written to, and can be."""
        return self.policy != "read-only" and self.store.capability().mode == "read-write"

    def works(self) -> bool:
        """Report whether it can at least be read."""
        return self.store.capability().mode != "off"


class TieredStore:
    """Looks here first, then in each tier in order.

    `notify` hears once what fails on the way, `count` each time and from which tier.
    """

    def __init__(
        self,
        local: CacheStore,
        tiers: Sequence[Tier],
        *,
        notify: Callable[[str], None] = ignore,
        count: Callable[[str, CacheError], None] = ignore,
    ) -> None:
        self._count = count
        self._local = Tier("local", local)
        self._tiers = tuple(tiers)
        self._notify = notify
        self._told: set[str] = set()

    def capability(self) -> Capability:
        """Return the union of all tiers' access; the reason names each tier's shortcoming."""
        everywhere = (self._local, *self._tiers)
        lacking = [said for tier in everywhere if (said := _lack_of(tier))]
        reason = "; ".join(lacking)
        if any(tier.is_written() for tier in everywhere):
            return Capability("read-write", reason)
        if any(tier.works() for tier in everywhere):
            return Capability("read-only", reason)
        return Capability("off", reason)

    def get(self, address: Address) -> StoredEntry | None:
        """Find the nearest sound entry. Raises what went wrong when nothing was found."""
        faults: list[tuple[Tier, CacheError]] = []
        for place, tier in enumerate((self._local, *self._tiers)):
            try:
                stored = tier.store.get(address) if tier.works() else None
            except CacheError as error:
                faults.append((tier, error))
                continue
            if stored is not None:
                self._tell_all(faults)
                extract = partial(self._extract, address, stored, place)
                return StoredEntry(stored.entry, extract, tier.name)
        grave = [one for one in faults if not isinstance(one[1], StoreUnavailable)]
        self._tell_all([one for one in faults if one not in grave[:1]])
        if grave:
            worst, fault = grave[0]
            fault.tier = worst.name
            raise fault
        return None

    def put(self, entry: Entry, directory: Path) -> bool:
        """Publish to what is written through, then here, then to what is written back."""
        address = Address(entry.kind, entry.key)
        kept = False
        for tier in self._written("write-through"):
            published = self._offer(tier, entry, directory)
            if published is False and not kept and self._has(tier, address):
                return False
            kept = kept or bool(published)
        try:
            mine = self._local.store.put(entry, directory)
        except StoreUnavailable as error:
            if not kept and not self._written("write-back"):
                raise
            self._tell(self._local, error)
            mine = None
        if mine is False:
            return False
        for tier in self._written("write-back"):
            kept = self._offer(tier, entry, directory) is True or kept
        if not (mine or kept):
            raise StoreUnavailable("tiers", "none of them took the files")
        return True

    def list(self, kind: str | None = None) -> Iterator[Entry]:
        """Yield each entry once, the nearest of those with one address."""
        seen: set[Address] = set()
        for tier in (self._local, *self._tiers):
            try:
                for entry in tier.store.list(kind) if tier.works() else ():
                    address = Address(entry.kind, entry.key)
                    if address not in seen:
                        seen.add(address)
                        yield entry
            except CacheError as error:
                self._tell(tier, error)

    def delete(self, address: Address) -> bool:
        """Delete an entry here and in every writable tier."""
        deleted = False
        for tier in (self._local, *self._tiers):
            if tier.is_written():
                deleted = tier.store.delete(address) or deleted
        return deleted

    def _extract(self, address: Address, stored: StoredEntry, place: int, into: Path) -> None:
        """Extract the files; where that fails, those of the very same entry farther away."""
        everywhere = (self._local, *self._tiers)
        try:
            stored.extract(into)
        except CacheError:
            for next_place in range(place + 1, len(everywhere)):
                if self._take_from(everywhere[next_place], address, stored.entry, into):
                    place = next_place
                    break
            else:
                raise
        if place and self._local.is_written():
            try:
                self._local.store.put(stored.entry, into)
            except CacheError as error:
                self._tell(self._local, error)

    def _take_from(self, tier: Tier, address: Address, wanted: Entry, into: Path) -> bool:
        clear(into)
        try:
            stored = tier.store.get(address) if tier.works() else None
            if stored is None or stored.entry != wanted:
                return False
            stored.extract(into)
        except CacheError as error:
            self._tell(tier, error)
            return False
        return True

    def _written(self, policy: Policy) -> Sequence[Tier]:
        return [tier for tier in self._tiers if tier.policy == policy and tier.is_written()]

    def _offer(self, tier: Tier, entry: Entry, directory: Path) -> bool | None:
        """Publish to a tier; None when that did not work."""
        try:
            return tier.store.put(entry, directory)
        except Unpublishable:
            raise
        except CacheError as error:
            self._tell(tier, error)
            return None

    def _has(self, tier: Tier, address: Address) -> bool:
        """Report whether the entry that was first can be used: else ours is kept here."""
        try:
            return tier.store.get(address) is not None
        except NewerEntry:
            return False
        except CacheError as error:
            self._tell(tier, error)
            return False

    def _tell_all(self, faults: Sequence[tuple[Tier, CacheError]]) -> None:
        for tier, error in faults:
            self._tell(tier, error)

    def _tell(self, tier: Tier, error: CacheError) -> None:
        self._count(tier.name, error)
        message = f"{tier.name}: {error.message}"
        if message not in self._told:
            self._told.add(message)
            self._notify(message)


def _lack_of(tier: Tier) -> str:
    """Return what a tier should do and cannot; "" when all is as wished."""
    capability = tier.store.capability()
    wished = "read-only" if tier.policy == "read-only" else "read-write"
    if capability.mode in (wished, "read-write"):
        return ""
    return f"{tier.name} is {capability.mode}: {capability.reason}"
