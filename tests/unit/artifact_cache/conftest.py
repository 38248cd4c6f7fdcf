"""Fixtures of the cache's tests that need no server."""

from __future__ import annotations

from tests.support.cache_places import cache as cache
from tests.support.cache_places import root as root
