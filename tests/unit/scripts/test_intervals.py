"""Intervals of `scripts/mutate`, held against published numbers and written ones."""

from __future__ import annotations

import pytest

from tests.support.places import SCRIPTS
from tests.support.workers import load

intervals = load(SCRIPTS / "_intervals.py")


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, statistics in medicine 17: table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (0, 0, 0.0, 1.0),
    ],
)
def test_an_interval_is_wilsons(part: int, whole: int, low: float, high: float) -> None:
    assert intervals.wilson(part, whole) == pytest.approx((low, high), abs=5e-5)


def test_only_mutants_that_were_judged_twice_are_compared() -> None:
    before = {"a": True, "b": True, "c": False, "d": False, "gone": True}
    now = {"a": True, "b": False, "c": True, "d": False, "new": True}

    assert intervals.compare(before, now) == intervals.Paired(4, lost=("b",), won=("c",))


@pytest.mark.parametrize(
    ("lost", "won", "worse"),
    [(0, 0, False), (4, 0, False), (5, 0, True), (12, 6, False), (17, 6, True), (0, 9, False)],
)
def test_a_room_is_worse_where_the_interval_of_the_difference_ends_below_nothing(
    lost: int, won: int, worse: bool
) -> None:
    pair = intervals.Paired(100, ("x",) * lost, ("y",) * won)

    assert pair.is_worse is worse
    assert pair.difference == (won - lost) / 100
