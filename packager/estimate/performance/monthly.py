"""What a month costs at a stated load: whole machines, always on.

A price of tokens holds at full load only.  A buyer pays for machines by the hour, whatever they
do: the smallest number of them that computes the requests of a day, spread evenly over it.

    machines  = requests a day / (86,400 s x requests a second of one), rounded up
    a month   = machines x 730 h x price of an hour
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from packager.core.plan import Plan
from packager.core.units import percent
from packager.estimate.performance.predict import Point, Prediction
from packager.estimate.performance.presets import TPOT_LIMIT_S
from packager.estimate.performance.pricing import MONTH_H, price_per_month

DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthlyCost:
    """US dollars of a month at a load, with the machines it takes."""

    requests_per_day: int
    capacity_per_day: int  # requests that one machine, or group of nodes, computes in a day
    machines: int
    most_machines: int  # where the speed lies at the lower end of its band
    usd: float
    most_usd: float
    usd_of_one: float  # of one machine, always on, at any load up to its capacity


def monthly_cost(
    plan: Plan,
    prediction: Prediction,
    requests_per_day: int,
    *,
    tpot_limit_s: float = TPOT_LIMIT_S,
    discount: float = 0.0,
) -> MonthlyCost | None:
    """Compute a month at a load; None if the machine's price is unknown."""
    if plan.usd_hour is None:
        return None
    point = busiest_point(prediction.points, tpot_limit_s)
    capacity = DAY_S * point.output_tokens_s / prediction.workload.yields
    band = prediction.bands.throughput.share if prediction.bands else prediction.band
    machines = max(1, math.ceil(requests_per_day / capacity))
    most = max(machines, math.ceil(requests_per_day / (capacity / (1 + band))))
    of_one = price_per_month(plan.usd_hour, discount=discount)
    return MonthlyCost(
        requests_per_day=requests_per_day,
        capacity_per_day=int(capacity),
        machines=machines,
        most_machines=most,
        usd=machines * of_one,
        most_usd=most * of_one,
        usd_of_one=of_one,
    )


def busiest_point(points: Iterable[Point], tpot_limit_s: float) -> Point:
    """Return where most tokens come, each in time; the fastest where none is in time."""
    found = tuple(points)
    in_time = [point for point in found if point.tpot_s <= tpot_limit_s]
    if not in_time:
        return min(found, key=lambda point: point.tpot_s)
    return max(in_time, key=lambda point: point.output_tokens_s)


def monthly_document(cost: MonthlyCost | None) -> dict[str, Any] | None:
    """Return the cost as JSON."""
    return asdict(cost) if cost else None


def monthly_sentence(cost: MonthlyCost, prediction: Prediction) -> str:
    """Write the cost of a month, its load, and what it takes."""
    several = f"{cost.machines:,} instances" if cost.machines > 1 else "1 instance"
    words = (
        f"${cost.usd:,.0f} a month for {cost.requests_per_day:,} requests a day "
        f"({load_words(prediction)}): {several}, always on"
    )
    if cost.most_machines > cost.machines:
        words += f"; up to {cost.most_machines:,} at the slow end of the band"
    return f"{words}; one holds {cost.capacity_per_day:,} requests a day"


def load_words(prediction: Prediction) -> str:
    """Write the lengths of a request: `622 tokens in, 250 out`."""
    workload = prediction.workload
    if workload.texts:
        return f"{workload.texts:,} x {workload.input_tokens} tokens in"
    return f"{workload.input_tokens} tokens in, {workload.output_tokens} out"


def formula_sentences(*, discount: float = 0.0) -> tuple[str, ...]:
    """Explain the figure, so that it can be computed again for another load."""
    off = f", less {percent(discount)}" if discount else ""
    return (
        "Instances = requests a day / requests that one holds a day, rounded up to whole machines "
        f"that are always on. A month = instances x {MONTH_H} h x the price of an hour{off}.",
        f"One holds {DAY_S:,} s x tokens/s at its most requests at once that are in time / tokens "
        "of an answer. A range is what the band of the predicted speed makes of it.",
        "The load is spread evenly over the day: for peaks of twice the mean, state twice the "
        "load with --requests-per-day.",
    )
