"""A cache on the disk, with many small entries that differ in a seed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.entry import parse_entry
from artifact_cache.fsck import Checked, check
from artifact_cache.gc import Collected, GcPolicy, collect
from artifact_cache.key import key_of
from artifact_cache.pins import Pin, Pins
from artifact_cache.results import CacheResult
from artifact_cache.store import Address, address_of
from tests.support.cache_entries import Build, document
from tests.support.cache_opening import LocalStore, open_local

HOUR = 3600.0
DAY = 24 * HOUR
AT_ONCE = GcPolicy(max_bytes=0, grace_s=0)
RUTHLESS = GcPolicy(max_bytes=0, max_age_s=0, grace_s=0)


def key(seed: int) -> str:
    """Return the key of an entry."""
    return key_of(document(seed))


def address(seed: int) -> Address:
    """Return the address of an entry."""
    return address_of(document(seed))


@dataclass
class Site:
    """The cache at `root`; what is built or taken goes below `work`."""

    root: Path
    work: Path

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.root)

    @property
    def pins(self) -> Pins:
        return Pins(self.store)

    def open(self, **options: Any) -> ArtifactCache:
        return open_local(self.root, **options)

    def build(self, *seeds: int) -> None:
        """Build an entry per seed, of 700 bytes and a little, of a model of its own."""
        for seed in seeds:
            content, labels = f"tensor{seed}".encode(), {"model": f"model {seed}"}
            into = self.work / f"built{seed}"
            self.open().get_or_build(document(seed), Build(content), into, labels=labels)

    def take(self, seed: int, name: str = "hit", content: bytes = b"built anew") -> CacheResult:
        """Get the entry of a seed, or build it with other content."""
        return self.open().get_or_build(document(seed), Build(content), self.work / name)

    def seeds(self) -> list[int]:
        """Return which entries of seeds below 10 are found."""
        return [seed for seed in range(10) if self.open().find(document(seed))]

    def entries(self) -> list[Path]:
        return list(self.root.glob("ac/*/*/*.json"))

    def blobs(self) -> list[Path]:
        return list(self.root.glob("cas/*/*/*"))

    def quarantine(self) -> list[Path]:
        return list(self.root.glob("quarantine/*"))

    def is_whole(self) -> bool:
        """Whether every entry has all its blobs, and no blob is without an entry."""
        entries = [parse_entry(path.read_bytes()) for path in self.entries()]
        named = {output.sha256 for entry in entries for output in entry.outputs}
        return named == {path.name for path in self.blobs()}

    def pin(self, seed: int, name: str = "release") -> None:
        self.pins.add(name, Pin(keys=(key(seed),)))

    def let_be_used(self, seed: int, ago_s: float) -> None:
        """Let the last use, and the publishing, of an entry be a while ago."""
        use = self.store.use_path(key(seed))
        use.parent.mkdir(parents=True, exist_ok=True)
        use.touch()
        for path in (use, self.store.entry_path(address(seed))):
            os.utime(path, (time.time() - ago_s, time.time() - ago_s))

    def set_aside(self, seed: int) -> None:
        """Let the entry of a seed be in quarantine."""
        self.store.set_aside(self.store.entry_path(address(seed)), ".json")

    def collect(
        self, policy: GcPolicy = AT_ONCE, *, in_s: float = 1, dry_run: bool = False
    ) -> Collected:
        """Collect with a clock that runs ahead."""
        return collect(self.store, policy, dry_run=dry_run, clock=lambda: time.time() + in_s)

    def check(self, **options: Any) -> Checked:
        return check(self.store, **options)


@pytest.fixture
def site(root: Path, tmp_path: Path) -> Site:
    """A cache that does not exist yet."""
    return Site(root, tmp_path)
