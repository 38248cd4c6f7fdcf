"""The kernel's table of mounts."""

from __future__ import annotations

from pathlib import Path

from packager.addons.nodes.mounts.table import MountedAt, read_mounts
from tests.support.cases import as_type, read_tables


def test_names_are_as_they_are_and_optional_fields_are_passed_over(tmp_path: Path) -> None:
    tables = read_tables(__file__)
    (tmp_path / "mountinfo").write_text(tables["mountinfo"])

    expected = tuple(as_type(row, MountedAt) for row in tables["mounts"])
    assert read_mounts(tmp_path / "mountinfo") == expected
