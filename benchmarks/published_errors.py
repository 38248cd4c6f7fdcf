"""Errors of predictions for published points whose own model was left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
from fit_published import ALONE, class_rows, elsewhere_rows, first_rows, sets_of
from published import Published

from packager.estimate.performance import published
from packager.estimate.performance.predict import Workload, bands_of, predict_point
from packager.estimate.performance.published import (
    PublishedSet,
    PublishedTable,
    classes_of,
    elsewhere_of,
    first_of,
)

FEW = 20  # points of a class, below which it is told apart


@dataclass(frozen=True, slots=True)
class Scored:
    """One point with its error, the set it is of, and the band that was promised."""

    one: PublishedSet
    point: Published
    error: float  # |predicted / published - 1|
    is_held: bool
    ttft_error: float | None  # of one request alone; None where the figure is not shown
    ttft_held: bool = False


def scored(points: Sequence[Published]) -> list[Scored]:
    """Predict every point without anything that was published of its model."""
    sets = sets_of(points)
    found = []
    for one, group in zip(sets, _groups(points), strict=True):
        with _only([other for other in sets if other.form != one.form]):
            found += [_score(one, point) for point in group]
    return found


def scored_with_one(points: Sequence[Published]) -> list[Scored]:
    """Predict the other points of every set once each of its points is given."""
    sets = sets_of(points)
    found = []
    for one, group in zip(sets, _groups(points), strict=True):
        others = [other for other in sets if other.form != one.form]
        for place, given in enumerate(one.points):
            with _only([*others, replace(one, points=(given,))]):
                found += [_score(one, point) for n, point in enumerate(group) if n != place]
    return found


def summary(found: Iterable[Scored]) -> dict[str, Any]:
    """Return median and 90th percentile of errors, and the share inside the bands."""
    every = list(found)
    errors = [each.error for each in every]
    first = [each.ttft_error for each in every if each.ttft_error is not None]
    held = [each.ttft_held for each in every if each.ttft_error is not None]
    return {
        "points": len(every),
        "median": round(float(np.median(errors)), 4),
        "p90": round(float(np.quantile(errors, 0.9)), 4),
        "held": round(float(np.mean([each.is_held for each in every])), 4),
        "ttft_points": len(first),
        "ttft_median": round(float(np.median(first)), 4) if first else None,
        "ttft_held": round(float(np.mean(held)), 4) if held else None,
    }


def _groups(points: Sequence[Published]) -> list[list[Published]]:
    found: dict[str, list[Published]] = {}
    for point in points:
        found.setdefault(point.set_name, []).append(point)
    return list(found.values())


@contextmanager
def _only(sets: list[PublishedSet]) -> Iterator[None]:
    """Correct predictions by these sets alone."""
    table = PublishedTable(
        sets=tuple(sets),
        classes=classes_of(class_rows(sets)),
        remaining=published.published_table().remaining,
        elsewhere=elsewhere_of(elsewhere_rows(sets)),
        first=first_of(first_rows(sets)),
    )
    published.correction_for.cache_clear()
    with patch.object(published, "published_table", lambda: table):
        yield
    published.correction_for.cache_clear()


def _score(one: PublishedSet, point: Published) -> Scored:
    workload = Workload(input_tokens=point.input_tokens, output_tokens=point.output_tokens)
    found = predict_point(point.setup, workload, point.concurrency)
    bands = bands_of(point.setup, workload, round(point.concurrency))
    if point.tpot_s:
        ratio, band = point.tpot_s / found.tpot_s, bands.tpot.share
    else:
        assert point.output_tokens_s
        ratio, band = point.output_tokens_s / found.output_tokens_s, bands.throughput.share
    first, first_held = None, False
    if point.ttft_s and point.concurrency <= ALONE and bands.ttft:
        first = abs(found.prefill_s / point.ttft_s - 1)
        first_held = abs(point.ttft_s / found.prefill_s - 1) <= bands.ttft.share
    return Scored(one, point, abs(1 / ratio - 1), abs(ratio - 1) <= band, first, first_held)
