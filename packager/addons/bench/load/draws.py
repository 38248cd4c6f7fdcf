"""Random choices that are the same for the same seed on every machine and Python.

Python promises the sequence of `Random.random` alone: everything here is made from it, with
additions and comparisons, whose results no library rounds in its own way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random
from typing import TypeVar

_Item = TypeVar("_Item")


def draws(*key: object) -> Random:
    """Return the generator of a key, such as a seed, the name of a load and a number."""
    text = "\x1f".join(map(str, key))
    return Random(int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest(), "big"))


def pick(random: Random, items: Sequence[_Item]) -> _Item:
    """Return one of the items, each as likely as the others."""
    return items[int(random.random() * len(items))]


def shuffled(random: Random, items: Sequence[_Item]) -> list[_Item]:
    """Return the items in a random order."""
    found = list(items)
    for last in range(len(found) - 1, 0, -1):
        other = int(random.random() * (last + 1))
        found[last], found[other] = found[other], found[last]
    return found


def normal(random: Random, mean: float, stddev: float) -> float:
    """Return a number of a normal distribution, at most six standard deviations from its mean."""
    if not stddev:
        return mean
    return mean + stddev * (sum(random.random() for _ in range(12)) - 6.0)
