"""Intervals of `scripts/mutate`, held against published numbers and written ones."""

from __future__ import annotations

import pytest

from tests.support.cases import cases
from tests.support.places import SCRIPTS
from tests.support.workers import load

intervals = load(SCRIPTS / "_intervals.py")


@cases("an_interval_is_wilsons")
def test_an_interval_is_wilsons(part: int, whole: int, low: float, high: float) -> None:
    assert intervals.wilson(part, whole) == pytest.approx((low, high), abs=5e-5)


def test_only_mutants_that_were_judged_twice_are_compared() -> None:
    before = {"a": True, "b": True, "c": False, "d": False, "gone": True}
    now = {"a": True, "b": False, "c": True, "d": False, "new": True}

    assert intervals.compare(before, now) == intervals.Paired(4, lost=("b",), won=("c",))


@cases("a_room_is_worse_where_the_interval_of_the_difference_ends_below_nothing")
def test_a_room_is_worse_where_the_interval_of_the_difference_ends_below_nothing(
    lost: int, won: int, worse: bool
) -> None:
    pair = intervals.Paired(100, ("x",) * lost, ("y",) * won)

    assert pair.is_worse is worse
    assert pair.difference == (won - lost) / 100
