"""Fixtures of the cache's tests that need no server."""

from __future__ import annotations

from tests.support.cache_places import cache as cache
from tests.support.cache_places import root as root
from tests.support.cache_sites import site as site
