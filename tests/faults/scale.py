"""How much is tried: a sample with every change, everything with `PACKAGER_FAULTS=long`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import TypeVar

LONG = os.environ.get("PACKAGER_FAULTS") == "long"

First = TypeVar("First")
Second = TypeVar("Second")


def some(cases: Iterable[First], count: int) -> list[First]:
    """`count` of the cases, spread evenly; all of them in the long form."""
    every = list(cases)
    if LONG or count >= len(every):
        return every
    return [every[number * len(every) // count] for number in range(count)]


def one_of_each(firsts: Iterable[First], seconds: Iterable[Second]) -> list[tuple[First, Second]]:
    """Every first with one second, taken in turn; in the long form, all pairs."""
    if LONG:
        return list(itertools.product(firsts, seconds))
    return list(zip(firsts, itertools.cycle(seconds)))
