"""Predictions from measurements alone, where no figures of the device are published.

Between two measured concurrencies times follow the straight line of their logarithms; there is no
prediction outside of them, or for requests of other lengths.  The band is the largest error at a
measured concurrency that the line leaves out, and no narrower than benchmarks repeat.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from packager.core.workload import Workload
from packager.estimate.performance.calibration import (
    LEAST_BAND,
    LEAST_POINTS,
    UNPROVEN_BAND,
    Measured,
    are_alike,
)
from packager.estimate.performance.predict import Band, Bands, Point, Prediction

Curve = Sequence[tuple[int, float]]  # a time by concurrency, rising concurrencies


def predict_between(
    workload: Workload, concurrencies: Iterable[int], measured: Sequence[Measured]
) -> Prediction | None:
    """Predict the concurrencies between measured ones; None where none is, or lengths differ."""
    alike = [point for point in measured if are_alike(point.workload, workload)]
    tpot = _curve((point.concurrency, point.tpot_s) for point in alike)
    ttft = _curve((point.concurrency, point.ttft_s) for point in alike if point.ttft_s)
    if not tpot:
        return None
    lowest, highest = tpot[0][0], tpot[-1][0]
    wanted = {number for number in concurrencies if lowest <= number <= highest}
    wanted |= {number for number, _ in tpot}
    points = tuple(_point(workload, number, tpot, ttft) for number in sorted(wanted))
    band = _band(tpot)
    source = f"{len(tpot)} measured concurrencies, {lowest}-{highest} requests"
    first = Band(share=_band(ttft), source=source) if ttft else None
    rates = {point.concurrency: point.output_tokens_s for point in points}
    missed = (
        abs(one.output_tokens_s / rates[one.concurrency] - 1)
        for one in alike
        if one.output_tokens_s and rates[one.concurrency]
    )
    # Without first tokens a request's time lacks that of its prompt.
    throughput_band = Band(
        share=max(band, first.share if first else UNPROVEN_BAND, *missed), source=source
    )
    return Prediction(
        workload=workload,
        points=points,
        band=band,
        bands=Bands(tpot=Band(share=band, source=source), throughput=throughput_band, ttft=first),
        assumptions=(
            f"no figures of the device are published: drawn through {source}, and nothing "
            "is said beyond them",
        ),
    )


def _point(workload: Workload, concurrency: int, tpot: Curve, ttft: Curve) -> Point:
    tpot_s = _at(tpot, concurrency)
    ttft_s = _at(ttft, concurrency) if ttft else 0.0
    latency_s = ttft_s + max(0, workload.output_tokens - 1) * tpot_s
    requests_s = concurrency / latency_s if latency_s else 0.0
    return Point(
        concurrency=concurrency,
        prefill_s=ttft_s,
        tpot_s=tpot_s,
        step_s=tpot_s,
        latency_s=latency_s,
        output_tokens_s=requests_s * workload.output_tokens,
        input_tokens_s=requests_s * workload.input_tokens,
        ttft_s=ttft_s,
    )


def _curve(points: Iterable[tuple[int, float]]) -> Curve:
    """Return the median of each concurrency's times."""
    found: dict[int, list[float]] = {}
    for concurrency, time_s in points:
        found.setdefault(concurrency, []).append(time_s)
    return [(number, median(times)) for number, times in sorted(found.items())]


def _at(curve: Curve, concurrency: int) -> float:
    """Return the time at a concurrency; beyond the ends that of the end."""
    below = [one for one in curve if one[0] <= concurrency]
    above = [one for one in curve if one[0] >= concurrency]
    if not below or not above:
        return (above or below)[0 if above else -1][1]
    (low, one), (high, other) = below[-1], above[0]
    if low == high:
        return one
    share = math.log(concurrency / low) / math.log(high / low)
    return math.exp(math.log(one) + share * math.log(other / one))


def _band(curve: Curve) -> float:
    """Return the largest error at a concurrency between two others, that the line leaves out."""
    if len(curve) < LEAST_POINTS:
        return UNPROVEN_BAND
    errors = [
        abs(time_s / _at([*curve[:place], *curve[place + 1 :]], number) - 1)
        for place, (number, time_s) in enumerate(curve[1:-1], 1)
    ]
    return max(LEAST_BAND, *errors)
