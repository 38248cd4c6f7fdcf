"""Fixtures of the tests of `packager check`."""

from __future__ import annotations

from tests.support.checked import check as check
