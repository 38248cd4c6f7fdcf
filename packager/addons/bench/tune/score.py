"""Scores: what one round of a candidate is worth for the goal. Higher is better.

A round that keeps the limits has a score above 0: answers a second of one reader for latency,
output tokens a second otherwise (the instance costs the same whatever runs on it, so that most
tokens are fewest dollars).  One that breaks them has a score below -1: how far it is beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from packager.core.bench import BenchLoad, Limits
from packager.estimate.performance.presets import Goal

MOST_FAILED = 0.01  # of a load's requests; with more, a candidate is of no use

TTFT, TPOT, LATENCY = "time_to_first_token", "inter_token_latency", "request_latency"
TOKENS = "output_token_throughput"

UNITS: Mapping[Goal, str] = {
    "latency": "answers/s of one reader",
    "throughput": "output tokens/s",
    "cost": "output tokens/s",
}


def score_of(loads: Sequence[BenchLoad], goal: Goal, limits: Limits) -> float:
    """Return the score of a round's loads: of the best of them that keeps the limits.

    For latency the first load counts alone: the fewest requests at a time.
    """
    load = headline_load(loads, goal, limits)
    if load is None:
        raise ValueError("a score needs a load")
    far = beyond(load, limits)
    return _worth(load, goal) if far <= 1 else -far


def headline_load(loads: Sequence[BenchLoad], goal: Goal, limits: Limits) -> BenchLoad | None:
    """Return the load whose figures are a round's score; None where there is none."""
    looked_at = loads[:1] if goal == "latency" else loads
    kept = [load for load in looked_at if beyond(load, limits) <= 1]
    if kept:
        return max(kept, key=lambda load: _worth(load, goal))
    return min(looked_at, key=lambda load: beyond(load, limits), default=None)


def why_useless(loads: Sequence[BenchLoad], limits: Limits) -> str:
    """Return why a candidate that gave these answers is not measured again; "" where it is.

    A limit on a missing figure counts as broken, as in a benchmark.
    """
    for load in loads:
        asked = load.requests
        lost = asked - load.answered + load.empty
        if not asked or lost > MOST_FAILED * asked:
            first = f": {load.errors[0].reason}" if load.errors else ""
            empty = f", {load.empty} of them empty" if load.empty else ""
            return f"{lost} of {asked} requests got no answer{empty}{first}"
        if not math.isfinite(_worth(load, "throughput")) or _worth(load, "throughput") <= 0:
            return "its answers hold no tokens"
        for tag, limit in _by_tag(limits).items():
            if tag not in load.metrics:
                what = tag.replace("_", " ")
                return f"its answers tell no {what}, of which the limit is {limit:g} ms"
    return "" if loads else "nothing was measured"


def beyond(load: BenchLoad, limits: Limits) -> float:
    """Return how far a load is beyond its limits: above 1 where too many requests break them.

    The 95th percentile of each figure over its limit; the worst of them.  Infinity where there is
    no such figure: `why_useless` says so before anything is scored.
    """
    worst = 0.0
    for tag, limit in _by_tag(limits).items():
        metric = load.metrics.get(tag)
        if metric is None:
            return math.inf
        value = metric.p95 if metric.p95 is not None else metric.avg
        worst = max(worst, value / limit)
    return worst


def _by_tag(limits: Limits) -> dict[str, float]:
    asked = {TTFT: limits.ttft_ms, TPOT: limits.tpot_ms, LATENCY: limits.latency_ms}
    return {tag: limit for tag, limit in asked.items() if limit is not None}


def _worth(load: BenchLoad, goal: Goal) -> float:
    if goal == "latency":
        metric = load.metrics.get(LATENCY)
        if metric is None:
            return 0.0
        value = metric.p50 if metric.p50 is not None else metric.avg
        return 1e3 / value if value > 0 else 0.0
    metric = load.metrics.get(TOKENS)
    return metric.avg if metric else 0.0
