"""The order in which variants are measured.

A machine drifts: it warms up, others use it.  Rounds are therefore interleaved, so that every
variant is measured at about the same time as the others, and none is always first or always after
the same one (Williams, "Experimental designs balanced for the estimation of residual effects of
treatments", 1949).  Comparisons pair measurements by round.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One load of one server. All fields are places in the caller's lists, from 0."""

    round: int
    variant: int
    level: int


def order_turns(
    variants: int, levels: int, rounds: int, *, one_at_a_time: bool = False
) -> tuple[Turn, ...]:
    """List all loads in the order of measuring; levels always rise within a round.

    Variants alternate at every level.  `one_at_a_time` is for servers that cannot run side by side:
    each takes all its levels before the next one is started.
    """
    rows = balanced_orders(variants)
    turns = []
    for number in range(rounds):
        if one_at_a_time:
            for variant in rows[number % len(rows)]:
                for level in range(levels):
                    turns.append(Turn(round=number, variant=variant, level=level))
        else:
            for level in range(levels):
                for variant in rows[(number + level) % len(rows)]:
                    turns.append(Turn(round=number, variant=variant, level=level))
    return tuple(turns)


def balanced_orders(count: int) -> tuple[tuple[int, ...], ...]:
    """Return orders of `count` things in which each is in every place equally often.

    Each also follows every other equally often.  That takes `count` orders, twice as many for an
    odd count; the first is 0, 1, … for two, and any beginning of the list is about balanced.
    """
    first, low, high = [0], 1, count - 1
    while low <= high:  # 0, 1, n-1, 2, n-2, …: neighbours differ by another distance each time
        first.append(low)
        if high != low:
            first.append(high)
        low, high = low + 1, high - 1
    rows = [tuple((place + shift) % count for place in first) for shift in range(count)]
    if count % 2 and count > 1:
        rows = [row for one in rows for row in (one, one[::-1])]
    return tuple(rows)
