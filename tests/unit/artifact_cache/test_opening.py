"""Addresses of shared stores, and the cache that is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from artifact_cache.opening import BadTier, TierAddress, parse_tier
from artifact_cache.trust import Trust, generate_key, load_signer, load_trusted_keys, trust_key
from tests.support.cache_entries import CHECKPOINT, Build, files_of
from tests.support.cache_opening import open_cache
from tests.support.cases import cases
from tests.support.places import files_below


@cases("understood")
def test_addresses_are_understood(address: str, parsed: dict[str, Any]) -> None:
    assert parse_tier(address) == TierAddress(**parsed)


@cases("refused")
def test_what_cannot_be_meant_is_refused(address: str, reason: str) -> None:
    with pytest.raises(BadTier, match=reason):
        parse_tier(address)


def test_two_machines_share_a_directory(tmp_path: Path) -> None:
    shared = f"dir:{tmp_path / 'shared'}"
    first = open_cache(tmp_path / "A", [shared])
    second = open_cache(tmp_path / "B", [f"ro:{shared}"])
    build = Build()

    first.get_or_build(CHECKPOINT, build, tmp_path / "a")
    result = second.get_or_build(CHECKPOINT, build, tmp_path / "b")

    assert build.runs == 1
    assert result.hit
    assert result.notices == ()
    assert files_below(tmp_path / "b") == files_of(b"tensors")


def test_an_unsigned_entry_here_does_not_hide_a_signed_one_there(tmp_path: Path) -> None:
    shared = f"dir:{tmp_path / 'shared'}"
    trust_key(tmp_path / "trusted", generate_key(tmp_path / "key"))
    trust = Trust(load_trusted_keys(tmp_path / "trusted"), require_signed=True)
    open_cache(tmp_path / "A").get_or_build(CHECKPOINT, Build(b"unsigned"), tmp_path / "a")
    signer = load_signer(tmp_path / "key")
    open_cache(tmp_path / "B", [shared], signer=signer).get_or_build(
        CHECKPOINT, Build(b"signed"), tmp_path / "b"
    )

    reader = open_cache(tmp_path / "A", [shared], trust=trust)
    assert reader.get_or_build(CHECKPOINT, Build(b"never"), tmp_path / "c").hit
    assert files_below(tmp_path / "c") == files_of(b"signed")


@cases("faults")
def test_a_fault_is_counted_once_for_each_tier_that_has_it(
    tmp_path: Path, damaged: str, hits: int, tiers: set[str]
) -> None:
    """A damaged copy is counted although a sound one in another tier makes the request a hit."""
    shared = f"dir:{tmp_path / 'shared'}"
    cache = open_cache(tmp_path / "cache", [shared])
    cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")
    for path in tmp_path.glob(f"{damaged}/ac/*/*/*.json"):
        path.unlink()
        path.write_bytes(b"{}")

    assert cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b").hit == bool(hits)

    assert cache.stats is not None
    counted = {(total.tier, total.event): total.count for total in cache.stats.totals()}
    faults = {tier: count for (tier, event), count in counted.items() if event == "integrity"}
    assert faults == {shared if tier == "shared" else tier: 1 for tier in tiers}
    assert sum(count for (_, event), count in counted.items() if event == "hit") == hits
