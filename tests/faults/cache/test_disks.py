"""Disks that are full or read-only, and a cache that a later version shares."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from artifact_cache.gc import GcPolicy, collect
from tests.conftest import need
from tests.faults.cache.conftest import Mount
from tests.faults.cache.state import mend, path_of
from tests.faults.cache.working import NOTHING_STAYS, OldBuild
from tests.faults.counters import never, tried
from tests.faults.scale import some
from tests.support.cache_entries import CHECKPOINT, NEWER, document, files_below, files_of
from tests.support.cache_opening import LocalStore, open_local

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
    disk = mounted(options)
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
    disk = mounted("size=8m")
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


def test_two_versions_share_a_cache(here: Path) -> None:
    """What the later one wrote stays as it is, with all it may need; the rest works as ever."""
    root = here / "cache"
    theirs = [document(seed) for seed in range(10)]
    ours = [document(seed) for seed in range(10, 20)]
    for one in (*theirs, *ours):
        open_local(root).get_or_build(one, OldBuild(b"ours"), here / "built")
        shutil.rmtree(here / "built")
    for one in theirs:
        path_of(root, one).unlink()
        path_of(root, one).write_bytes(NEWER)
    for one in (*theirs, *ours):
        tried()
        result = open_local(root).get_or_build(one, OldBuild(b"theirs"), here / "out")
        with never("wrong_bytes"):
            assert files_below(result.path) == files_of(b"ours" if one in ours else b"theirs")
        assert result.hit == (one in ours)
        shutil.rmtree(here / "out")
    collected = collect(LocalStore(root), GcPolicy(max_bytes=0, max_age_s=0, grace_s=0))
    assert collected.problem == ""
    for one in theirs:
        assert path_of(root, one).read_bytes() == NEWER

    mend(root, here, wanted=ours[0], policy=NOTHING_STAYS)
