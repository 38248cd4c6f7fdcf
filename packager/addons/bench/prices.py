"""What measured tokens cost, and from which load on a larger machine is the cheaper one.

The formulas are those of `estimate.performance.pricing`; F3 is the default, since it counts what
was measured.  F1 takes the time per output token, never the gap between chunks: with a draft a
chunk holds several tokens, and F1 would show no gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from packager.addons.bench.decision import GOOD_SHARE
from packager.addons.bench.pareto import has_few_errors
from packager.core.bench import BenchLoad, Metric, Prices
from packager.estimate.performance.pricing import (
    HOUR_S,
    blended_price,
    price_per_million,
    tokens_s_by_gap,
    tokens_s_by_latency,
)

MOST_MACHINES = 10_000


def prices_of(
    load: BenchLoad, usd_hour: float, *, discount: float = 0.0, source: str = ""
) -> Prices | None:
    """Compute every price of a load, in US dollars per million tokens.

    `discount` 0.26 takes 26 % off.  None: no token came.
    """

    def price(tokens_s: float | None) -> float | None:
        return price_per_million(usd_hour, tokens_s, discount=discount) if tokens_s else None

    output_tokens_s = _average(load, "output_token_throughput")
    input_tokens_s = _average(load, "input_token_throughput")
    if not output_tokens_s and not (input_tokens_s and _average(load, "text_throughput")):
        return None
    return Prices(
        usd_hour=usd_hour,
        discount=discount,
        source=source,
        output=price(output_tokens_s),
        input=price(input_tokens_s),
        total=price((output_tokens_s or 0) + input_tokens_s) if input_tokens_s else None,
        f1=price(_tokens_s_by_gap(load)),
        f2=price(_tokens_s_by_latency(load)),
        blended=blended_price(usd_hour, output_tokens_s, discount=discount)
        if output_tokens_s
        else None,
    )


def _tokens_s_by_gap(load: BenchLoad) -> float | None:
    gap = load.metrics.get("inter_token_latency")
    if load.concurrency is None or load.rate is not None or gap is None or not gap.p50:
        return None
    return tokens_s_by_gap(load.concurrency, gap.p50 / 1e3)


def _tokens_s_by_latency(load: BenchLoad) -> float | None:
    tokens = _average(load, "output_sequence_length")
    latency_ms = _average(load, "request_latency")
    if load.concurrency is None or load.rate is not None or not tokens or not latency_ms:
        return None
    return tokens_s_by_latency(load.concurrency, tokens, latency_ms / 1e3)


def _average(load: BenchLoad, tag: str) -> float | None:
    metric: Metric | None = load.metrics.get(tag)
    return metric.avg if metric else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one machine of a kind answers and costs in an hour."""

    name: str
    requests_hour: float
    usd_hour: float  # with the discount

    def bill(self, requests_hour: float) -> float:
        """Return the dollars of an hour: whole machines, one at least."""
        return self.usd_hour * self.machines(requests_hour)

    def machines(self, requests_hour: float) -> int:
        return max(1, math.ceil(requests_hour / self.requests_hour - 1e-9))


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The load from which the larger machine is the cheaper one."""

    requests_hour: float  # more than this
    smaller: str
    larger: str
    smaller_machines: int  # that a little more takes
    larger_machines: int


def capacity_of(name: str, loads: Iterable[BenchLoad]) -> Capacity | None:
    """Return a machine's greatest measured throughput, of loads that served their users.

    Those have at most 1 % errors, and 95 % of their requests within the limits, if there are any.
    None: no such load has both an answer and a price.
    """
    best: Capacity | None = None
    for load in loads:
        requests_s = _average(load, "request_throughput")
        is_late = load.good is not None and load.good < GOOD_SHARE
        if not requests_s or load.prices is None or is_late or not has_few_errors(load):
            continue
        if best is None or requests_s * HOUR_S > best.requests_hour:
            usd_hour = load.prices.usd_hour * (1 - load.prices.discount)
            best = Capacity(name=name, requests_hour=requests_s * HOUR_S, usd_hour=usd_hour)
    return best


def break_even(one: Capacity, other: Capacity) -> BreakEven | None:
    """Find the least load at which the dearer machine makes the smaller bill.

    Bills grow in steps, by whole machines: the dearer one first wins where the cheaper ones are
    full and another would be added.  None: there is no such load.
    """
    smaller, larger = sorted(
        (one, other), key=lambda capacity: (capacity.usd_hour, capacity.requests_hour)
    )
    for machines in range(1, MOST_MACHINES):
        load = machines * smaller.requests_hour
        beyond = load * (1 + 1e-6)
        if larger.bill(beyond) < smaller.bill(beyond):
            return BreakEven(
                requests_hour=load,
                smaller=smaller.name,
                larger=larger.name,
                smaller_machines=smaller.machines(beyond),
                larger_machines=larger.machines(beyond),
            )
    return None
