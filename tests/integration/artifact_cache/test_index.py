"""The index answers as reading every entry would, and is never believed."""

from __future__ import annotations

from pathlib import Path

from tests.support.cache_places import Mount
from tests.unit.artifact_cache.test_index import built, keys, listed


def test_where_nothing_can_be_written_the_index_is_in_memory(
    root: Path, tmp_path: Path, mounted: Mount
) -> None:
    built(root, tmp_path, 1)
    read_only = mounted("--bind", "-o", "ro", str(root))

    assert listed(read_only) == keys(1)
    assert not (root / "index.sqlite").exists()
