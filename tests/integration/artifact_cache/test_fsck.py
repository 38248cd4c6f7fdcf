"""Everything is read, what is broken is set aside, what is whole comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifact_cache.errors import StoreUnavailable
from tests.support.cache_places import Mount
from tests.unit.artifact_cache.test_fsck import built, checked


def test_a_read_only_disk_is_checked_and_not_repaired(
    root: Path, tmp_path: Path, mounted: Mount
) -> None:
    built(root, tmp_path, 1)
    read_only = mounted("--bind", "-o", "ro", str(root))

    assert checked(read_only, repair=False).sound
    with pytest.raises(StoreUnavailable, match="read-only file system"):
        checked(read_only)
