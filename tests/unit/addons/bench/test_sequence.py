"""No variant is always first, and none always follows the same other one."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from packager.addons.bench.sequence import Turn, balanced_orders, order_turns


def test_one_variant_is_measured_level_by_level() -> None:
    assert order_turns(1, 2, 1) == (
        Turn(round=0, variant=0, level=0),
        Turn(round=0, variant=0, level=1),
    )


def test_four_variants_are_ordered_as_a_williams_square() -> None:
    assert balanced_orders(4) == ((0, 1, 3, 2), (1, 2, 0, 3), (2, 3, 1, 0), (3, 0, 2, 1))


@pytest.mark.parametrize("variants", [2, 3, 4, 5, 6, 7])
def test_every_variant_has_every_place_and_every_neighbour_equally_often(variants: int) -> None:
    orders = balanced_orders(variants)

    places = Counter((place, name) for order in orders for place, name in enumerate(order))
    neighbours = Counter(pair for order in orders for pair in pairwise(order))

    assert len(places) == variants**2
    assert len(set(places.values())) == 1
    assert len(neighbours) == variants * (variants - 1)
    assert len(set(neighbours.values())) == 1


@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_every_load_is_made_once(one_at_a_time: bool) -> None:
    turns = order_turns(3, 4, 5, one_at_a_time=one_at_a_time)

    assert len(turns) == len(set(turns)) == 60
    assert [turn.round for turn in turns] == sorted(turn.round for turn in turns)


@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_at_every_level_two_variants_are_first_equally_often(one_at_a_time: bool) -> None:
    turns = order_turns(2, 3, 4, one_at_a_time=one_at_a_time)

    for level in range(3):
        firsts = [
            next(t.variant for t in turns if (t.round, t.level) == (number, level))
            for number in range(4)
        ]
        assert sorted(firsts) == [0, 0, 1, 1]
