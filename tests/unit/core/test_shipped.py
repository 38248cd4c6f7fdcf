"""Shipped tables are read alike by the compiled parser and by the standard library's."""

from __future__ import annotations

import sys

import pytest

from packager.core.share import PACKAGE, read_shipped, share_dir

TABLES = sorted({*PACKAGE.rglob("*.toml"), *share_dir("containers").rglob("*.toml")})


def test_every_shipped_table_is_read_without_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools have packager's code, and none of what it requires, in their Python."""
    compiled = [read_shipped(table) for table in TABLES]
    monkeypatch.setitem(sys.modules, "tomli", None)

    assert [read_shipped(table) for table in TABLES] == compiled
    assert len(compiled) > 30
