"""Points that no other point beats.

With prices: tokens/s of a user against dollars per million tokens.  Without: tokens/s against
latency.  The loss of quality joins where it is known of every variant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packager.addons.bench.search import MOST_ERRORS_PERCENT
from packager.core.bench import BenchLoad, BenchVariant


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    variant: str
    concurrency: int
    costs: tuple[float, ...]  # all: less is better


def pareto(variants: Sequence[BenchVariant]) -> tuple[tuple[str, int], ...]:
    """Return (variant, concurrency) of the points that are not beaten, in their order.

    A point is beaten by one that is at least as good in everything, and better in something.
    Loads with more than 1 % errors, and those by a rate, are no points.
    """
    measured = [
        (variant, load)
        for variant in variants
        for load in variant.loads
        if load.concurrency is not None and load.rate is None and has_few_errors(load)
    ]
    are_priced = all(load.prices and load.prices.output for _, load in measured)
    losses = {variant.name: quality_loss(variant) for variant in variants}
    is_known = all(losses[variant.name] is not None for variant, _ in measured)
    points = []
    for variant, load in measured:
        costs = _price_and_speed(load) if are_priced else _latency_and_throughput(load)
        loss = losses[variant.name]
        if costs is not None and load.concurrency is not None:
            more = (loss,) if is_known and loss is not None else ()
            points.append(
                _Point(variant=variant.name, concurrency=load.concurrency, costs=costs + more)
            )
    return tuple(
        (point.variant, point.concurrency)
        for point in points
        if not any(_beats(other, point) for other in points)
    )


def _beats(one: _Point, other: _Point) -> bool:
    return one.costs != other.costs and all(
        mine <= theirs for mine, theirs in zip(one.costs, other.costs, strict=True)
    )


def has_few_errors(load: BenchLoad) -> bool:
    """Whether a request was answered, and at most 1 % of the requests failed."""
    failed = sum(error.count for error in load.errors)
    return load.answered > 0 and 100 * failed <= MOST_ERRORS_PERCENT * load.requests


def quality_loss(variant: BenchVariant) -> float | None:
    """Return the divergence from the unquantized model, 0 for that itself; None: unknown."""
    if variant.quality is not None:
        return variant.quality.quality.kld_mean if variant.quality.is_measurable else 0.0
    return 0.0 if variant.setup.quantization == "none" else None


def _price_and_speed(load: BenchLoad) -> tuple[float, ...] | None:
    speed = _user_speed(load)
    if speed is None or load.prices is None or load.prices.output is None:
        return None
    return load.prices.output, -speed


def _user_speed(load: BenchLoad) -> float | None:
    """Return tokens/s of one request while its answer comes."""
    speed = load.metrics.get("output_token_throughput_per_user")
    return speed.avg if speed else None


def _latency_and_throughput(load: BenchLoad) -> tuple[float, ...] | None:
    latency = load.metrics.get("request_latency")
    throughput = load.metrics.get("output_token_throughput")
    if latency is None or latency.p50 is None or throughput is None:
        return None
    return latency.p50, -throughput.avg
