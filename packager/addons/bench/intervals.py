"""Intervals of confidence of means, from few measurements.

Student's t distribution for whole degrees of freedom, exactly: the finite sums of Abramowitz and
Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean, and its interval at the requested confidence."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Interval:
    """Compute the mean of two or more measurements with its interval.

    The measurements are taken as independent and about normally distributed.
    """
    count = len(values)
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = t_quantile(count - 1, confidence) * math.sqrt(variance / count)
    return Interval(mean=mean, low=mean - half, high=mean + half)


@lru_cache(maxsize=256)
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return t with `confidence` of the distribution between -t and t."""
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < confidence:
        low, high = high, 2 * high
    for _ in range(100):  # halves: the last bit is reached before
        middle = (low + high) / 2
        if t_probability(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return high


def t_probability(t: float, freedom: int) -> float:
    """Return the probability between -t and t, with `freedom` degrees of freedom."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    is_odd = freedom % 2
    term = cosine if is_odd else 1.0
    total = 0.0
    for k in range(1 + is_odd, freedom, 2):
        total += term
        term *= k / (k + 1) * cosine**2
    return (angle + sine * total) * 2 / math.pi if is_odd else sine * total
