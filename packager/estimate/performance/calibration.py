"""Predictions fitted to what a user measured.

The formula stays as it is; groups of its terms are multiplied (`Scale`).  Each factor is
pulled towards 1, so that figures without information on a term leave it alone:

    1 or 2 concurrencies   one factor on everything
    3                      one on the step, one on prompts
    4 or more              one each on memory, on overhead, on prompts

From `LEAST_POINTS` concurrencies on, the band between the lowest and the highest is the largest
error that is left, at a measured point or at one that was left out of the fit.  With fewer, and
with points of another layout or device, it is what points of other models were still off by once
one of theirs was given (`published.Remaining`).  Elsewhere nothing is wider than that, and the
general band stays where it is narrower and every measurement lies inside it.  Where one does not,
the band is at least `UNPROVEN_BAND`: the prediction was wrong, and the corrected one is unproven.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType
from typing import Literal

from packager.core.errors import UsageError
from packager.estimate.performance.predict import (
    Band,
    Bands,
    Point,
    Prediction,
    Setup,
    Workload,
    predict,
    predict_point,
)
from packager.estimate.performance.published import published_table
from packager.estimate.performance.scale import UNSCALED, Fit, Scale

LEAST_POINTS = 3  # concurrencies, below which a band is that of others
NEAR = 2.0  # times as few or as many requests: as near as the table's points were
LEAST_BAND = 0.10  # benchmarks of one server repeat within this
UNPROVEN_BAND = 0.40
# Times as fast or as slow as predicted: no server does that, a wrong unit does.
TOO_FAST, TOO_SLOW = 30.0, 500.0
MOST_SOURCES = 3  # that a sentence names
ALIKE = 1.5  # how many times as long requests may be for a band to be theirs too

# In logarithms: what times per token scatter by, and times to first token, which depend on how
# requests arrive; what a factor may be off 1.
_NOISE, _QUEUE_NOISE, _PRIOR = 0.05, 0.3, math.log(2)
_ROUNDS = 8
_MOST_FITTED, _MOST_LEFT_OUT = 48, 8

SideFigure = Literal["ttft_s", "output_tokens_s"]
Place = Literal["here", "layout", "device"]  # what of a point's server is not the plan's

PLACES: Mapping[Place, str] = MappingProxyType(
    {"here": "", "layout": " in another layout", "device": " on another device"}
)

_GROUPS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("memory", "overhead", "prefill"),),
    (("memory", "overhead", "prefill"),),
    (("memory", "overhead"), ("prefill",)),
    (("memory",), ("overhead",), ("prefill",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One point of a benchmark, with the set-up and the requests it was measured with."""

    setup: Setup
    workload: Workload
    concurrency: int
    tpot_s: float  # time per output token after the first
    ttft_s: float | None = None  # time to first token, with its queue
    output_tokens_s: float | None = None  # of the whole instance
    source: str = ""  # the file, or the text that states it


def implausible_time(point: Measured, predicted_s: float) -> UsageError:
    """Return an error: a measured time is so far from the predicted one that its unit must be

    another.
    """
    ratio = predicted_s / point.tpot_s
    guess = ""
    if ratio > TOO_FAST:
        guess = ": seconds given as milliseconds?"
    elif ratio < 1:
        guess = ": microseconds given as milliseconds?"
    return UsageError(
        f"{point.tpot_s * 1e3:.3g} ms per token were measured at {point.concurrency} "
        f"requests, and {predicted_s * 1e3:.3g} ms are predicted{guess}",
        hint="times of `points` are milliseconds; other files carry their units",
        code="ImplausibleTime",
    )


def predict_measured(
    setup: Setup,
    workload: Workload,
    concurrencies: Iterable[int],
    measured: Sequence[Measured] = (),
) -> Prediction | None:
    """Predict every concurrency, fitted to what was measured; None without published figures."""
    wanted = tuple(concurrencies)
    general = predict(setup, workload, wanted)
    if general is None or not measured:
        return general
    check_units(measured)
    fit = calibrate(measured, general.band, place_of(setup, measured))
    alike = all(are_alike(point.workload, workload) for point in measured)
    if not alike:
        fit = replace(fit, band=fit.outside, ttft_band=None, throughput_band=None)
    fitted = predict(setup, workload, wanted, fit.scale)
    assert fitted is not None  # the same device
    sources = tuple(dict.fromkeys(filter(None, (point.source for point in measured))))
    return replace(
        fitted,
        band=fit.outside,
        bands=_widened(general.bands, fit, measured),
        fit=fit,
        assumptions=(
            fit_sentence(fit, alike=alike, place=place_of(setup, measured), sources=sources),
            *fitted.assumptions,
        ),
    )


def check_units(measured: Iterable[Measured]) -> None:
    """Raise `implausible_time` for a time that only a wrong unit explains."""
    for point in measured:
        predicted_s = _predicted(point, UNSCALED).tpot_s
        if not 1 / TOO_FAST < point.tpot_s / predicted_s < TOO_SLOW:
            raise implausible_time(point, predicted_s)


def place_of(setup: Setup, measured: Iterable[Measured]) -> Place:
    """Return how near the nearest point was measured to the server that is planned."""
    places = [point.setup for point in measured]
    if any(_layout(one) == _layout(setup) for one in places):
        return "here"
    is_same = any(one.accelerator.name == setup.accelerator.name for one in places)
    return "layout" if is_same else "device"


def _layout(setup: Setup) -> tuple[object, ...]:
    degrees = (setup.tp_degree, setup.pp_degree, setup.dp_degree, setup.expert_parallel)
    return (setup.accelerator.name, setup.replicas, *degrees)


def calibrate(measured: Sequence[Measured], general_band: float, place: Place = "here") -> Fit:
    """Fit factors to at least one measured time per output token."""
    places = _by_concurrency(measured)
    agrees = all(abs(_error(point, UNSCALED)) <= general_band for point in measured)
    is_proof = place == "here" and len(places) >= LEAST_POINTS
    scale = _fitted(places)
    errors = [abs(_error(point, scale)) for point in measured]
    left = published_table().remaining
    far = left.load if place == "here" else getattr(left, place)
    if is_proof:
        errors += _left_out_errors(places)
    general = min(_moved(general_band, scale), far) if agrees else max(UNPROVEN_BAND, far)
    outside = max(general, *errors)
    if is_proof:
        least = min(LEAST_BAND, general_band)
    else:
        least = min(left.near, outside) if place == "here" else outside
    return Fit(
        scale=scale,
        points=len(places),
        lowest=places[0].concurrency,
        highest=places[-1].concurrency,
        factors=len(_GROUPS[min(len(places), len(_GROUPS)) - 1]),
        agrees=agrees,
        band=max(least, *errors),
        outside=outside,
        ttft_band=_side_band(measured, scale, "ttft_s"),
        throughput_band=_side_band(measured, scale, "output_tokens_s"),
        reach=1.0 if is_proof else NEAR,
    )


def _moved(band: float, scale: Scale) -> float:
    """Return the band that a scaled prediction needs to cover all that the unscaled one's did.

    A prediction changes by no more than the factors on its terms.
    """
    if scale == UNSCALED:
        return band
    factors = (scale.memory, scale.overhead, scale.prefill)
    least, most = min(1.0, *factors), max(1.0, *factors)
    return max((1 + band) / least - 1, 1 - (1 - band) / most)


def fit_sentence(
    fit: Fit, *, alike: bool = True, place: Place = "here", sources: Sequence[str] = ()
) -> str:
    """Describe what a prediction was fitted to and where its bands come from."""
    points = f"{fit.points} measured point{'' if fit.points == 1 else 's'} at {_range_words(fit)}"
    source_words = f" ({', '.join(sources[:MOST_SOURCES])})" if sources else ""
    done = f"fitted to {points}{PLACES[place]}{source_words}"
    inside, outside = (f"{share * 100:.0f} %" for share in (fit.band, fit.outside))
    if not alike:
        return f"{done}: ±{outside}, the measured requests had other lengths"
    if fit.band == fit.outside:
        return f"{done}: ±{outside} for the time per token"
    where = "there" if fit.reach == 1 else "from half to twice as many"
    also = "".join(
        f", {name} ±{share * 100:.0f} %"
        for name, share in (
            ("to the first token", fit.ttft_band),
            ("tokens/s", fit.throughput_band),
        )
        if share is not None
    )
    return f"{done}: ±{inside} for the time per token {where}{also}; ±{outside} elsewhere"


def _range_words(fit: Fit) -> str:
    if fit.lowest == fit.highest:
        return f"{fit.lowest} request{'' if fit.lowest == 1 else 's'}"
    return f"{fit.lowest}-{fit.highest} requests"


def _widened(bands: Bands | None, fit: Fit, measured: Sequence[Measured]) -> Bands | None:
    """Return the bands outside the measured concurrencies.

    Tokens per second are no surer than times per token, and no band is narrower than what was
    measured needs.
    """
    if bands is None:
        return None
    source = f"outside the measured concurrencies, {_range_words(fit)}"
    first = max(_side_errors(measured, fit.scale, "ttft_s").values(), default=0.0)
    rate = max(_side_errors(measured, fit.scale, "output_tokens_s").values(), default=0.0)
    ttft = bands.ttft
    if ttft and ttft.share < first:
        ttft = Band(share=first, source=source)
    return Bands(
        tpot=Band(share=fit.outside, source=source),
        throughput=Band(share=max(fit.outside, rate), source=source),
        ttft=ttft,
    )


def _by_concurrency(measured: Sequence[Measured]) -> tuple[Measured, ...]:
    """Merge what was measured at the same concurrency: repeating a point adds no other one."""
    found: dict[int, list[Measured]] = {}
    for point in measured:
        found.setdefault(point.concurrency, []).append(point)
    return tuple(
        replace(points[0], tpot_s=median(point.tpot_s for point in points))
        if len({(_layout(point.setup), point.workload) for point in points}) == 1
        else sorted(points, key=lambda point: point.tpot_s)[len(points) // 2]
        for _, points in sorted(found.items())
    )


def _side_band(measured: Sequence[Measured], scale: Scale, name: SideFigure) -> float | None:
    """Return the largest error of another figure; None where too few were measured."""
    errors = _side_errors(measured, scale, name)
    return max(LEAST_BAND, *errors.values()) if len(errors) >= LEAST_POINTS else None


def _side_errors(
    measured: Sequence[Measured], scale: Scale, name: SideFigure
) -> Mapping[int, float]:
    """Return the largest error of another figure by concurrency, where it was measured."""
    errors: dict[int, float] = {}
    for point in measured:
        found, predicted = getattr(point, name), getattr(_predicted(point, scale), name)
        if found is not None and predicted:
            error = abs(found / predicted - 1)
            errors[point.concurrency] = max(error, errors.get(point.concurrency, 0.0))
    return errors


def _left_out_errors(places: Sequence[Measured]) -> list[float]:
    """Return how far off each is by a fit without it; the two ends would be extrapolated."""
    within = _spread(places[1:-1], _MOST_LEFT_OUT)
    kept = _spread(places, _MOST_LEFT_OUT + 2)
    return [
        abs(_error(left_out, _fitted([point for point in kept if point is not left_out])))
        for left_out in within
    ]


def _fitted(places: Sequence[Measured]) -> Scale:
    """Minimise squared logarithms of errors and of factors, by Gauss-Newton with shorter steps."""
    groups = _GROUPS[min(len(places), len(_GROUPS)) - 1]
    points = _spread(places, _MOST_FITTED)
    best = [0.0] * len(groups)
    residuals = _residuals(points, groups, best)
    for _ in range(_ROUNDS):
        step = _newton_step(points, groups, best, residuals)
        while max(map(abs, step)) > 1e-4:
            tried = [here + change for here, change in zip(best, step, strict=True)]
            found = _residuals(points, groups, tried)
            if _squares(found, tried) < _squares(residuals, best):
                best, residuals = tried, found
                break
            step = [change / 2 for change in step]
        else:
            break
    return _scale(groups, best)


def _newton_step(
    points: Sequence[Measured],
    groups: tuple[tuple[str, ...], ...],
    here: list[float],
    residuals: list[float],
) -> list[float]:
    width = 1e-3
    slopes = []
    for index in range(len(here)):
        aside = [value + width * (place == index) for place, value in enumerate(here)]
        moved = _residuals(points, groups, aside)
        slopes.append([(a - b) / width for a, b in zip(moved, residuals, strict=True)])
    matrix = [
        [sum(a * b for a, b in zip(one, other, strict=True)) for other in slopes] for one in slopes
    ]
    right = [-sum(a * b for a, b in zip(one, residuals, strict=True)) for one in slopes]
    for index, value in enumerate(here):
        matrix[index][index] += 1 / _PRIOR**2
        right[index] -= value / _PRIOR**2
    return _solve(matrix, right)


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a positive definite system of at most three equations by elimination."""
    size = len(right)
    for column in range(size):
        for row in range(column + 1, size):
            share = matrix[row][column] / matrix[column][column]
            for place in range(column, size):
                matrix[row][place] -= share * matrix[column][place]
            right[row] -= share * right[column]
    found = [0.0] * size
    for row in reversed(range(size)):
        known = sum(matrix[row][place] * found[place] for place in range(row + 1, size))
        found[row] = (right[row] - known) / matrix[row][row]
    return found


def _residuals(
    points: Sequence[Measured], groups: tuple[tuple[str, ...], ...], logarithms: list[float]
) -> list[float]:
    scale = _scale(groups, logarithms)
    weight = 1 / math.sqrt(len(points))
    found = []
    for point in points:
        predicted = _predicted(point, scale)
        found.append(weight * math.log(predicted.tpot_s / point.tpot_s) / _NOISE)
        if point.ttft_s and predicted.ttft_s and len(groups) > 1:  # one factor is of tokens
            found.append(weight * math.log(predicted.ttft_s / point.ttft_s) / _QUEUE_NOISE)
    return found


def _squares(residuals: list[float], logarithms: list[float]) -> float:
    return sum(value**2 for value in residuals) + sum((x / _PRIOR) ** 2 for x in logarithms)


def _scale(groups: tuple[tuple[str, ...], ...], logarithms: list[float]) -> Scale:
    factors = {
        name: math.exp(value)
        for names, value in zip(groups, logarithms, strict=True)
        for name in names
    }
    return Scale(**factors)


def _predicted(point: Measured, scale: Scale) -> Point:
    return predict_point(point.setup, point.workload, point.concurrency, scale=scale)


def _error(point: Measured, scale: Scale) -> float:
    """Return how far the measured time is from the predicted one, as a share of that."""
    return point.tpot_s / _predicted(point, scale).tpot_s - 1


def _spread(places: Sequence[Measured], most: int) -> tuple[Measured, ...]:
    """Choose at most so many, evenly, with the first and the last."""
    if len(places) <= most:
        return tuple(places)
    return tuple(places[round(n * (len(places) - 1) / (most - 1))] for n in range(most))


def are_alike(one: Workload, other: Workload) -> bool:
    """Return whether requests are of about the same lengths."""
    pairs = ((one.input_tokens, other.input_tokens), (one.output_tokens, other.output_tokens))
    return all(1 / ALIKE <= first / second <= ALIKE for first, second in pairs)
