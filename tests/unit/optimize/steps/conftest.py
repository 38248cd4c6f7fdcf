"""Fixtures of the tests of steps that run none."""

from __future__ import annotations

from tests.support.demo_tools import into as into
