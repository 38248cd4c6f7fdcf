"""Stores that lose blobs, near and far: a build more, and never half an artifact."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.locks import KeyLocks
from artifact_cache.store import Address, StoredEntry
from artifact_cache.stores.tiered import Tier, TieredStore
from tests.faults.cache.state import mend
from tests.faults.counters import never, tried
from tests.faults.scale import LONG
from tests.support.cache_entries import Build, document, files_of
from tests.support.cache_opening import LocalStore
from tests.support.places import files_below

BUILDS = 200 if LONG else 30
KEYS = 5


class LossyStore(LocalStore):
    """Loses some blobs whenever it is asked; which ones is decided by their digests and the turn.

    Between finding an entry and taking its files out, and again and again: that is when it hurts.
    """

    def __init__(self, root: Path, percent: int) -> None:
        super().__init__(root, always_hash=True)
        self.percent = percent
        self.lost = 0
        self._turn = 0

    def get(self, address: Address) -> StoredEntry | None:
        stored = super().get(address)
        self._turn += 1
        for path in self.root.glob("cas/sha256/??/*"):
            dice = hashlib.sha256(f"{self._turn} {path.name}".encode()).digest()
            if int.from_bytes(dice[:4]) % 100 < self.percent:
                path.unlink(missing_ok=True)
                self.lost += 1
        return stored


@pytest.mark.parametrize("percent", [1, 10, 25, 50])
@pytest.mark.parametrize("place", ["near", "far"])
def test_a_store_that_loses_blobs_costs_builds_alone(here: Path, place: str, percent: int) -> None:
    lossy = LossyStore(here / "lossy", percent)
    for number in range(BUILDS):
        tried()
        machine = here / f"machine{number}"
        wanted = document(number % KEYS)
        store = (
            lossy
            if place == "near"
            else TieredStore(LocalStore(machine), [Tier("far", lossy, "write-through")])
        )
        build = Build(b"%d" % (number % KEYS))
        result = ArtifactCache(store, KeyLocks(here / "locks")).get_or_build(
            wanted, build, here / f"out{number}"
        )
        with never("wrong_bytes"):
            assert files_below(result.path) == files_of(build.content)
        assert result.hit or build.runs == 1
        shutil.rmtree(result.path)
    assert lossy.lost or percent == 1

    for number in range(KEYS):  # every key once, now that nothing is lost any more
        cache = ArtifactCache(LocalStore(here / "lossy"), KeyLocks(here / "locks"))
        cache.get_or_build(document(number), Build(b"%d" % number), here / f"rerun{number}")
    for number in range(KEYS):
        (here / f"mend{number}").mkdir()
        known = (b"%d" % number, b"heir")
        mend(here / "lossy", here / f"mend{number}", wanted=document(number), known=known)
