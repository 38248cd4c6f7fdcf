"""What is handed on to shared stores is what was published."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from artifact_cache.store import address_of
from packager.optimize.steps.presence import Presence
from tests.support.cache_entries import CHECKPOINT, Build, files_of
from tests.support.cache_opening import LocalStore, open_cache
from tests.support.places import files_below


@pytest.fixture
def root(tmp_path: Path) -> Path:
    open_cache(tmp_path / "cache").get_or_build(CHECKPOINT, Build(b"tensors"), tmp_path / "built")
    return tmp_path / "cache"


def presence(root: Path, shared: Path) -> Presence:
    return Presence(
        open_cache(root, always_hash=True),
        [f"dir:{shared}"],
        partial=root / "partial",
        work_dir=root.parent / "work",
    )


def damage_under_stamp(root: Path, tmp_path: Path) -> None:
    blob = max(root.glob("cas/*/*/*"), key=lambda path: path.stat().st_size)
    os.utime(blob, (1, 1))
    open_cache(root).take(CHECKPOINT, tmp_path / "stamping")
    blob.chmod(0o644)
    blob.write_bytes(b"TENSORS" * 100)
    blob.chmod(0o444)
    os.utime(blob, (1, 1))


def test_what_a_shared_store_lacks_is_handed_on(root: Path, tmp_path: Path) -> None:
    address = address_of(CHECKPOINT)

    assert presence(root, tmp_path / "shared").ensure(address.kind, address.key)
    taken = open_cache(tmp_path / "shared").take(CHECKPOINT, tmp_path / "out")
    assert files_below(taken.path) == files_of(b"tensors")


def test_what_is_damaged_under_its_stamp_is_not_handed_on(root: Path, tmp_path: Path) -> None:
    address = address_of(CHECKPOINT)
    damage_under_stamp(root, tmp_path)

    assert not presence(root, tmp_path / "shared").ensure(address.kind, address.key)

    assert list((tmp_path / "shared").glob("cas/*/*/*")) == []
    assert LocalStore(root).get(address) is None
