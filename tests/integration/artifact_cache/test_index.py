"""The index answers as reading every entry would, and is never believed."""

from __future__ import annotations

from tests.support.cache_places import Mount
from tests.support.cache_sites import Site
from tests.unit.artifact_cache.test_index import keys, listed


def test_where_nothing_can_be_written_the_index_is_in_memory(site: Site, mounted: Mount) -> None:
    site.build(1)
    assert listed(mounted("--bind", "-o", "ro", str(site.root))) == keys(1)
    assert not (site.root / "index.sqlite").exists()
