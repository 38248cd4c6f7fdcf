"""Fixtures of the tests that run steps."""

from __future__ import annotations

from tests.support.demo_tools import into as into
from tests.support.demo_tools import tools as tools
