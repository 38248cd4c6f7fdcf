"""Everything is read, what is broken is set aside, what is whole comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from artifact_cache.errors import StoreUnavailable
from tests.support.cache_places import Mount
from tests.support.cache_sites import Site


def test_a_read_only_disk_is_checked_and_not_repaired(site: Site, mounted: Mount) -> None:
    site.build(1)
    read_only = replace(site, root=mounted("--bind", "-o", "ro", str(site.root)))

    assert read_only.check(repair=False).sound
    with pytest.raises(StoreUnavailable, match="read-only file system"):
        read_only.check()
