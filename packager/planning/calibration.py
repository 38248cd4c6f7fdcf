"""Coefficients of the predictor fitted to measurements of one set-up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from packager.planning.performance import (
    DEFAULTS,
    LEAST_BAND,
    WIDE_BAND,
    Calibration,
    Coefficients,
    Setup,
    Workload,
    predict_point,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One point of a benchmark, with the set-up it was measured on."""

    setup: Setup
    workload: Workload
    concurrency: int
    tpot_s: float


def calibrate(measured: Iterable[Measured]) -> Calibration:
    """Fit `memory_share` and `hop_s` to measured times per output token.

    The other two stay: steps that a benchmark of serving sees are bound by
    memory, so it says little about the rest.  A grid that is refined around
    its best point is exact enough, and cannot diverge.
    """
    points = tuple(measured)
    if not points:
        return Calibration(coefficients=DEFAULTS, band=WIDE_BAND, median_error=0.0, points=0)
    parallel = any(point.setup.tp_degree > 1 for point in points)
    best = DEFAULTS
    share_step, hop_step = 0.4, 200e-6
    while share_step > 1e-4:
        shares = {_within(best.memory_share + n * share_step, 0.05, 1.0) for n in range(-3, 4)}
        hops = {_within(best.hop_s + n * hop_step, 0.0, 2e-3) for n in range(-3, 4)}
        if not parallel:
            hops = {DEFAULTS.hop_s}  # nothing was exchanged, so nothing is learnt
        tried = (
            replace(DEFAULTS, memory_share=share, hop_s=hop)
            for share in sorted(shares)
            for hop in sorted(hops)
        )
        best = min(tried, key=lambda coefficients: _squared_errors(points, coefficients))
        share_step, hop_step = share_step / 2, hop_step / 2
    errors = sorted(abs(_error(point, best)) for point in points)
    return Calibration(
        coefficients=best,
        band=max(LEAST_BAND, errors[-1]),
        median_error=errors[len(errors) // 2],
        points=len(points),
    )


def _error(point: Measured, coefficients: Coefficients) -> float:
    predicted = predict_point(point.setup, point.workload, point.concurrency, coefficients)
    return predicted.tpot_s / point.tpot_s - 1


def _squared_errors(points: tuple[Measured, ...], coefficients: Coefficients) -> float:
    return sum(_error(point, coefficients) ** 2 for point in points)


def _within(value: float, least: float, most: float) -> float:
    return min(most, max(least, value))
