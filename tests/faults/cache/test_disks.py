"""Disks that are full."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import need
from tests.faults.cache.state import mend
from tests.faults.cache.working import OldBuild
from tests.faults.counters import never, tried
from tests.faults.scale import some
from tests.support.cache_entries import CHECKPOINT, files_of
from tests.support.cache_opening import open_local
from tests.support.cache_places import Mount
from tests.support.places import files_below

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
