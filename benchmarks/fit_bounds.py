"""What measurements say of the edges of the speed table: beyond its data, and against its order.

`fit_speed` writes both into the table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from typing import Any

from speed_data import SpeedPoint

from packager.estimate.performance.devices import figures_of

# Points up to so many requests or tokens are fitted, and those beyond predicted.
CUTS = {"requests": (8.0, 16.0, 32.0), "tokens": (1300.0, 2100.0, 3100.0, 5200.0)}
LEAST_BAND = 0.01  # of what was seen, so that a share of it means something
FEW = 10  # points, below which a doubling tells nothing
LEAST_GROWTH = 0.1  # of a band with each doubling; ours: no measurement proves that it stays

Errors = Callable[[Sequence[Any], Sequence[Any]], list[float]]


def growth_rows(
    samples: Sequence[Any], seen: Callable[[Sequence[Any]], float], beyond: Errors, band: Any
) -> dict[str, float]:
    """Return how much wider errors become with each doubling, by what is doubled.

    `seen` gives the band of curves that were left out of samples; `beyond` the errors of other
    samples by a fit to the first.  Of all cuts and distances the median counts, each as heavy as
    its points.
    """
    found = {}
    for name, cuts in CUTS.items():
        told: list[tuple[float, int]] = []
        for cut in cuts:
            inside = [each for each in samples if _size(each.point, name) <= cut]
            if not inside:
                continue
            usual = max(LEAST_BAND, seen(inside))
            known = {_server(each.point) for each in inside}
            far: dict[int, list[Any]] = {}
            for each in samples:
                doublings = math.ceil(math.log2(_size(each.point, name) / cut))
                if doublings > 0 and _server(each.point) in known:
                    far.setdefault(doublings, []).append(each)
            for doublings, group in far.items():
                if len(group) > FEW:
                    wider = band(beyond(inside, group)) / usual
                    told.append((wider ** (1 / doublings) - 1, len(group)))
        found[name] = round(max(LEAST_GROWTH, _weighed_median(told)), 2)
    return found


def _size(point: SpeedPoint, name: str) -> float:
    return point.batch if name == "requests" else point.input_tokens + point.output_tokens


def _server(point: SpeedPoint) -> tuple[Any, ...]:
    return (point.setup.engine, point.setup.accelerator.name, point.form)


def _weighed_median(told: Iterable[tuple[float, int]]) -> float:
    every = sorted(told)
    half = sum(weight for _, weight in every) / 2
    for value, weight in every:
        half -= weight
        if half <= 0:
            return value
    return 0.0


def reversed_rows(
    points: Sequence[SpeedPoint],
    predicted_s: Callable[[SpeedPoint], float],
    band: Callable[[Iterable[float]], float],
) -> list[dict[str, Any]]:
    """Return where a device was measured slower than one that it outdoes, by model and arithmetic.

    Predictions keep the order of the data sheets there, so the errors of all points of the model
    on that device go with the row.
    """
    found = []
    for (engine, form, precision), devices in sorted(_by_model(points).items()):
        for name, than in permutations(sorted(devices), 2):
            pairs = _pairs(devices[name], devices[than])
            ratios = [mine / other for mine, other in pairs]
            if not any(ratio > 1 for ratio in ratios):
                continue
            errors = [point.tpot_s / predicted_s(point) - 1 for point in devices[name]]
            found.append(
                {
                    "engine": engine,
                    "form": form,
                    "precision": precision,
                    "device": name,
                    "than": than,
                    "points": len(ratios),
                    "slower": sum(ratio > 1 for ratio in ratios),
                    "longest": round(max(ratios), 3),
                    "tpot": round(band(errors), 3),
                    "throughput": round(band(-each / (1 + each) for each in errors), 3),
                }
            )
    return found


def _by_model(points: Iterable[SpeedPoint]) -> dict[Any, dict[str, list[SpeedPoint]]]:
    found: dict[Any, dict[str, list[SpeedPoint]]] = {}
    for point in points:
        key = (point.setup.engine, point.form, point.precision)
        found.setdefault(key, {}).setdefault(point.setup.accelerator.name, []).append(point)
    return found


def _pairs(mine: Sequence[SpeedPoint], others: Sequence[SpeedPoint]) -> list[tuple[float, float]]:
    """Return the times of both devices at the same point, where the first outdoes the other."""
    sides = [places_of(side) for side in (mine, others)]
    return [
        (
            statistics.median(each.tpot_s for each in sides[0][place]),
            statistics.median(each.tpot_s for each in sides[1][place]),
        )
        for place in sides[0].keys() & sides[1].keys()
        if _outdoes(sides[0][place][0], sides[1][place][0])
    ]


def places_of(points: Iterable[SpeedPoint]) -> dict[Any, list[SpeedPoint]]:
    """Group points by all that they were measured at but the device."""
    found: dict[Any, list[SpeedPoint]] = {}
    for point in points:
        curve = point.curve.replace(f" {point.setup.accelerator.name} ", " ", 1)
        found.setdefault((curve, point.batch, point.setup.expert_parallel), []).append(point)
    return found


def _outdoes(one: SpeedPoint, other: SpeedPoint) -> bool:
    sheets = [
        figures_of(each.setup.accelerator, each.setup.model.scheme, each.setup.tp_degree)
        for each in (one, other)
    ]
    return sheets[0].outdoes(sheets[1])
