"""Tests stand under what they cost and under the package that they test."""

from __future__ import annotations

import re

import pytest

from tests.support.case_tables import read_tables
from tests.support.places import ROOT

TESTS = ROOT / "tests"
COSTS = {"unit", "integration", "live", "faults", "golden", "mutants"}
OTHER_ROOMS = {
    *("artifact_cache", "campaign", "containers", "packaging", "schemas", "scripts", "support"),
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
    unread = []
    for module in TESTS.rglob("test_*.py"):
        text = module.read_text(encoding="utf-8")
        if re.search(r"(cases_of|read_tables)\(__file__\)", text):
            unread += [name for name in read_tables(str(module)) if f'"{name}"' not in text]

    assert unread == []
