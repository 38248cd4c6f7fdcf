"""Ranking of predicted plans for a goal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.estimate.performance.choice import Objective, keeps_limits
from packager.estimate.performance.monthly import MonthlyCost, monthly_cost
from packager.estimate.performance.predict import Point, Prediction
from packager.estimate.performance.presets import REQUESTS_PER_DAY, TPOT_LIMIT_S, Candidate, Goal
from packager.estimate.performance.pricing import TokenPrices, make_prices

ALIKE = 1.05  # times as long per token as the fastest is as fast: bands are wider. Ours


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedInstance:
    """A plan that works, at the concurrency that suits the goal."""

    candidate: Candidate
    plan: Plan
    prediction: Prediction
    point: Point
    prices: TokenPrices | None  # None: price unknown
    in_time: bool  # each token comes within the limit
    monthly: MonthlyCost | None = None  # likewise


@dataclass(frozen=True, slots=True)
class SkippedInstance:
    """An instance that the model cannot run on, and why in one line."""

    instance: str
    reason: str
    fits: bool = False  # only figures of its devices are missing
    machine: Instance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Options by goal, the best first: one for each instance."""

    goal: Goal
    tpot_limit_s: float
    ttft_limit_s: float | None = None  # None: the first token may take its time
    options: tuple[RankedInstance, ...]
    skipped: tuple[SkippedInstance, ...]
    model: ModelFiles | None = None  # as it was read, for reports


def make_option(
    candidate: Candidate,
    plan: Plan,
    prediction: Prediction,
    target: Objective,
    *,
    discount: float = 0.0,
    requests_per_day: int = REQUESTS_PER_DAY,
) -> RankedInstance:
    """Choose the point that the goal looks at, and price it."""
    point = choose_point(prediction, target)
    return RankedInstance(
        candidate=candidate,
        plan=plan,
        prediction=prediction,
        point=point,
        prices=prices_at(plan, prediction, point, discount=discount),
        in_time=keeps_limits(point, target),
        monthly=monthly_cost(
            plan,
            prediction,
            requests_per_day,
            tpot_limit_s=target.tpot_limit_s,
            discount=discount,
        ),
    )


def choose_point(prediction: Prediction, target: Objective) -> Point:
    """Choose the workload's requests at once; else one for latency, the most in time otherwise.

    Where none is in time, the fastest stands in: the user sees that it is too slow.
    """
    if target.workload.concurrency:
        return prediction.points[-1]
    in_time = [point for point in prediction.points if keeps_limits(point, target)]
    if target.goal == "latency" or not in_time:
        return min(prediction.points, key=lambda point: point.tpot_s)
    return max(in_time, key=lambda point: point.output_tokens_s)


def prices_at(
    plan: Plan, prediction: Prediction, point: Point, *, discount: float = 0.0
) -> TokenPrices | None:
    """Return the prices of a point by F3, the default formula."""
    if plan.usd_hour is None:
        return None
    workload = prediction.workload
    return make_prices(
        plan.usd_hour,
        formula="F3",
        output_tokens_s=point.output_tokens_s,
        input_per_output=workload.request_tokens / workload.yields,
        discount=discount,
    )


def rank(
    options: Iterable[RankedInstance],
    skipped: Iterable[SkippedInstance],
    goal: Goal,
    tpot_limit_s: float = TPOT_LIMIT_S,
    ttft_limit_s: float | None = None,
) -> Ranking:
    """Order by goal and keep the best option of each instance."""
    best: dict[str, RankedInstance] = {}
    for option in sorted(options, key=lambda option: _order(option, goal)):
        best.setdefault(option.plan.instance.name, option)
    return Ranking(
        goal=goal,
        tpot_limit_s=tpot_limit_s,
        ttft_limit_s=ttft_limit_s,
        options=tuple(best.values()),
        skipped=tuple(skipped),
    )


def pareto(options: Iterable[RankedInstance]) -> tuple[RankedInstance, ...]:
    """Select the options that no other beats both in speed for one reader and in price."""
    front: list[RankedInstance] = []
    priced = [option for option in options if option.prices]
    for option in sorted(
        priced, key=lambda found: (-found.point.output_tokens_s_user, _usd(found))
    ):
        if not front or _usd(option) < _usd(front[-1]):
            front.append(option)
    return tuple(front)


def lowest_bill_of(options: Iterable[RankedInstance]) -> RankedInstance | None:
    """Return what serves the stated load for the fewest dollars a month, each token in time."""
    priced = [option for option in options if option.in_time and option.monthly]
    return min(priced, key=_usd_of_month) if priced else None


def fastest_of(options: Iterable[RankedInstance]) -> RankedInstance | None:
    """Return the fastest for one reader; of those that are alike, the one with the lowest bill.

    Cost rankings assume full machines; the latency of a single request needs another point.
    """
    in_time = [option for option in options if option.in_time]
    fast = [option for option in in_time if option.monthly] or in_time
    if not fast:
        return None
    quickest = [replace(one, point=_quickest(one)) for one in fast]
    least = min(option.point.tpot_s for option in quickest)
    alike = [one for one in quickest if one.point.tpot_s <= ALIKE * least]
    return min(alike, key=_usd_of_month)


def _quickest(option: RankedInstance) -> Point:
    return min(option.prediction.points, key=lambda point: point.tpot_s)


def _usd_of_month(option: RankedInstance) -> float:
    return option.monthly.usd if option.monthly else float("inf")


def _order(option: RankedInstance, goal: Goal) -> tuple[float | bool | str, ...]:
    """Sort key. Too slow and without a price come last; names make it repeatable."""
    point = option.point
    ties = (_usd(option), option.plan.instance.name, option.candidate.options)
    if goal == "latency":
        return (not option.in_time, point.tpot_s, point.prefill_s, *ties)
    if goal == "throughput":
        return (not option.in_time, -point.output_tokens_s, *ties)
    if option.prices is None:  # after those with a price, by what could be priced
        return (not option.in_time, _usd(option), -point.output_tokens_s, *ties)
    return (not option.in_time, *ties)


def _usd(option: RankedInstance) -> float:
    return option.prices.output if option.prices else float("inf")
