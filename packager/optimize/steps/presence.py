"""Checks that an artifact is in every store where others look for it.

With shared stores these are the writable ones: an artifact that only this machine has is of
no use to others.  Without shared stores it is this machine's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from artifact_cache.cache import ArtifactCache
from artifact_cache.entry import Entry
from artifact_cache.errors import CacheError
from artifact_cache.opening import TierAddress, parse_tier
from artifact_cache.store import Address, CacheStore, StoredEntry
from artifact_cache.stores.local import LocalStore
from artifact_cache.stores.s3 import S3Store
from artifact_cache.stores.s3_calls import Bucket
from artifact_cache.stores.trusted import TrustedStore
from artifact_cache.trust import Trust
from packager.optimize.steps.workspace import Workspace


class Presence:
    """Queries each shared store; publishes entries that only this machine has."""

    def __init__(
        self,
        cache: ArtifactCache,
        shared: Sequence[str],
        *,
        partial: Path,
        work_dir: Path,
        trust: Trust | None = None,
    ) -> None:
        addresses = [parse_tier(one) for one in shared]
        self._cache = cache
        self._work_dir = work_dir
        self._shared = [
            _trusted(_open(address, partial), trust)
            for address in addresses
            if address.policy != "read-only"
        ]

    @property
    def is_shared(self) -> bool:
        """Whether builds on this machine reach other machines."""
        return bool(self._shared)

    def has_shared(self, artifact: str, key: str) -> bool:
        """Return whether every shared store has it. Never raises."""
        address = Address(artifact, key)
        return all(_get(store, address) is not None for store in self._shared)

    def offer(self, entry: Entry, directory: Path) -> None:
        """Publish an entry to every shared store that lacks it, and to none of this machine.

        Raises `CacheError`.
        """
        address = Address(entry.kind, entry.key)
        for store in self._shared:
            if _get(store, address) is None:
                store.put(entry, directory)

    def refusals(self) -> tuple[str, ...]:
        """List why shared stores cannot be written to, one reason for each."""
        capabilities = (store.capability() for store in self._shared)
        return tuple(
            found.reason or f"it is {found.mode}"
            for found in capabilities
            if found.mode != "read-write"
        )

    def has(self, artifact: str, key: str) -> bool:
        """Return whether the artifact is in every required store. Never raises."""
        address = Address(artifact, key)
        stores = self._shared or [self._cache.store]
        return all(_get(store, address) is not None for store in stores)

    def ensure(self, artifact: str, key: str) -> bool:
        """Copy the artifact to stores that lack it; return whether all have it. Never raises."""
        address = Address(artifact, key)
        lacking = [store for store in self._shared if _get(store, address) is None]
        stored = _get(self._cache.store, address)
        if stored is None:
            return False
        with suppress(CacheError, OSError), Workspace(self._work_dir) as workspace:
            place = workspace.directory("hand-on") if lacking else None
            if place is not None:
                stored.extract(place)
                for store in lacking:
                    store.put(stored.entry, place)
        return self.has(artifact, key)


def without_lease(address: str) -> str:
    """Return the store's address with leases disabled.

    A plan names each key once, so that only the dead hold leases: a retry would
    wait for minutes until theirs have run out.
    """
    if parse_tier(address).scheme != "s3" or "lease=" in address.partition("?")[2]:
        return address
    return f"{address}{'&' if '?' in address else '?'}lease=no"


def _open(address: TierAddress, partial: Path) -> CacheStore:
    if address.scheme == "dir":
        return LocalStore(Path(address.place), always_hash=True)
    bucket = Bucket(address.place, endpoint_url=address.endpoint_url, region=address.region)
    return S3Store(bucket, address.prefix, partial=partial)


def _trusted(store: CacheStore, trust: Trust | None) -> CacheStore:
    return TrustedStore(store, trust) if trust else store


def _get(store: CacheStore, address: Address) -> StoredEntry | None:
    with suppress(CacheError, OSError):
        return store.get(address)
    return None
