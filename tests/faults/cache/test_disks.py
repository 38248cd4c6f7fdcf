"""Disks that are full or read-only, and a cache that a later version shares."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import need
from tests.faults.cache.state import mend
from tests.faults.cache.working import OldBuild
from tests.faults.counters import never, tried
from tests.faults.scale import some
from tests.support.cache_entries import CHECKPOINT, document, files_below, files_of
from tests.support.cache_opening import open_local
from tests.support.cache_places import Mount

KIB = 1024
LARGE = b"ours" * 1024  # its build leaves 400 KiB


def remount(disk: Path, options: str) -> None:
    subprocess.run([need("mount"), "-o", f"remount,{options}", str(disk)], check=True)


@pytest.mark.parametrize(
    "options",
    [f"size={size}k" for size in some(range(8, 480, 8), 8)]
    + [f"size=8m,nr_inodes={inodes}" for inodes in some(range(4, 48), 8)],
)
def test_a_full_disk_costs_the_cache_alone(mounted: Mount, tmp_path: Path, options: str) -> None:
    """Full anywhere between the first directory and the last file of the entry."""
    tried()
    disk = mounted("-t", "tmpfs", "-o", options, "none")
    for turn in ("first", "second"):
        result = open_local(disk / "cache").get_or_build(
            CHECKPOINT, OldBuild(LARGE), tmp_path / turn
        )
        with never("wrong_bytes"):
            assert files_below(result.path) == files_of(LARGE)
        assert result.stored or result.notices

    remount(disk, "size=16m,nr_inodes=1000")
    (tmp_path / "work").mkdir()
    mend(disk / "cache", tmp_path / "work", known=(LARGE, b"heir"))


def test_hits_come_from_a_read_only_disk_builds_pass_it(mounted: Mount, tmp_path: Path) -> None:
    disk = mounted("-t", "tmpfs", "-o", "size=8m", "none")
    open_local(disk / "cache").get_or_build(CHECKPOINT, OldBuild(b"ours"), tmp_path / "built")
    before = files_below(disk)
    remount(disk, "ro")
    try:
        tried(2)
        hit = open_local(disk / "cache").get_or_build(CHECKPOINT, OldBuild(b"no"), tmp_path / "hit")
        missed = open_local(disk / "cache").get_or_build(
            document(1), OldBuild(b"theirs"), tmp_path / "missed"
        )
        with never("wrong_bytes"):
            assert hit.hit
            assert files_below(hit.path) == files_of(b"ours")
            assert files_below(missed.path) == files_of(b"theirs")
        assert not missed.stored
        assert [notice.code for notice in missed.notices] == ["store"]
        assert files_below(disk) == before
    finally:
        remount(disk, "rw")
