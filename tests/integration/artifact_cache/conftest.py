"""Fixtures of the cache's tests: places on real file systems and in a real bucket."""

from __future__ import annotations

from tests.support.cache_buckets import place as place
from tests.support.cache_buckets import server as server
from tests.support.cache_places import cache as cache
from tests.support.cache_places import mounted as mounted
from tests.support.cache_places import root as root
from tests.support.cache_sites import site as site
