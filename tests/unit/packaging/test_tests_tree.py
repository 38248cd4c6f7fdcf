"""Tests stand under what they cost and under the package that they test."""

from __future__ import annotations

import pytest

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
