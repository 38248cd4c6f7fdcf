"""Runs of consecutive sizes: as few as a limit allows, and of much the same size."""

from __future__ import annotations

import math
from collections.abc import Sequence


def runs_within(sizes: Sequence[int], limit: int) -> list[range]:
    """Cut `sizes` into the fewest consecutive runs of at most `limit`, none empty.

    What is larger than the limit by itself is a run by itself.
    """
    runs: list[range] = []
    start = filled = 0
    for position, size in enumerate(sizes):
        if position > start and filled + size > limit:
            runs.append(range(start, position))
            start, filled = position, 0
        filled += size
    return [*runs, range(start, len(sizes))] if sizes else []


def balanced_runs(sizes: Sequence[int], count: int) -> list[range]:
    """Cut `sizes` into at most `count` consecutive runs, the largest as small as can be."""
    total = sum(sizes)
    low, high = math.ceil(total / count), total
    while low < high:
        middle = (low + high) // 2
        if len(runs_within(sizes, middle)) > count:
            low = middle + 1
        else:
            high = middle
    return runs_within(sizes, low)
