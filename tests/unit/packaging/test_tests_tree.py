"""Tests stand under what they cost and under the package that they test."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.cases import file_of
from tests.support.places import ROOT

TESTS = ROOT / "tests"
COSTS = {"unit", "integration", "live", "faults", "golden", "mutants"}
OF_ITS_OWN = r"tests\.support\.cases import .*\bcases\b"
READS = re.compile(rf'\b(?:cases_of|read_tables)\(__file__(?:, "(\w+)")?\)|{OF_ITS_OWN}')
OTHER_ROOMS = {
    *("artifact_cache", "campaign", "containers", "packaging", "schemas", "scripts", "support")
}


def test_every_test_stands_under_what_it_costs() -> None:
    files = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]

    assert len(files) > 300
    assert [str(path) for path in files if path.parts[0] not in COSTS] == []


@pytest.mark.parametrize("cost", ["unit", "integration"])
def test_rooms_of_tests_are_those_of_the_packages(cost: str) -> None:
    rooms = {path.parent.name for path in (TESTS / cost).glob("*/__init__.py")}
    packages = {path.parent.name for path in (ROOT / "packager").glob("*/__init__.py")}

    assert len(rooms) > 15
    assert rooms - packages - OTHER_ROOMS == set()


def test_every_table_of_cases_is_read() -> None:
    """A table that no test names would hold cases that nobody tries."""
    readers: dict[Path, list[str]] = {}  # the texts of the modules that read a file
    for module in TESTS.rglob("test_*.py"):
        text = module.read_text(encoding="utf-8")
        for name in set(READS.findall(text)):
            readers.setdefault(file_of(str(module), name), []).append(text)

    assert len(readers) > 200
    assert [
        f"{file}: {name}"
        for file, texts in readers.items()
        for name in tomllib.loads(file.read_text(encoding="utf-8"))
        if not any(f'"{name}"' in text for text in texts)
    ] == []
