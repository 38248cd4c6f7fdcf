"""Averages and percentiles of a metric, as AIPerf and numpy compute them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum, sqrt

from packager.core.bench import Metric

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def summarize(values: Iterable[float], unit: str) -> Metric | None:
    """Return the metric of many values; None where there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    total = fsum(ordered)
    mean = total / len(ordered)
    return Metric(
        unit=unit,
        avg=mean,
        min=ordered[0],
        max=ordered[-1],
        std=sqrt(fsum((value - mean) ** 2 for value in ordered) / len(ordered)),
        count=len(ordered),
        sum=total,
        **{f"p{percent}": percentile(ordered, percent) for percent in PERCENTILES},
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted values, on the line between the two next to it."""
    place = percent / 100 * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
