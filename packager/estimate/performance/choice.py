"""The choice among the ways to serve a model on one instance.

Every split of the model over the devices is predicted with the longest requests, and the most at
once, that fit its memory and latency limits; the best for the goal that holds a request of the
workload is chosen, and each rejected split states the reason.  Every choice is the best of a set
that only grows with memory, so that more memory never makes a plan worse.  Ties, and splits without
a prediction, are decided by fewer stages, then longer requests, then more devices, then input
order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from packager.core.plan import MemoryBudget
from packager.core.shape import Shape
from packager.core.split import Split
from packager.core.techniques import Rejected
from packager.core.workload import QUESTIONS, Workload
from packager.estimate.performance.predict import Point, Setup, predict_point
from packager.estimate.performance.presets import LATENCY_SLACK, TPOT_LIMIT_S, Goal
from packager.estimate.sizing.concurrency import choose_concurrency
from packager.estimate.sizing.parallelism import explain_cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Objective of the choice: a goal, the requests, and the latencies to keep."""

    goal: Goal | None = None  # None: as `throughput`
    workload: Workload = QUESTIONS
    tpot_limit_s: float = TPOT_LIMIT_S
    ttft_limit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Candidates to choose from, with their memory and speed."""

    splits: tuple[Split, ...]  # the preferred first
    shapes: tuple[Shape, ...]  # the longest first; each with the requested batch, else 1
    most: int  # requests at once that the engine computes, of one copy
    batch: int | None  # requested: it is kept
    budget_at: Callable[[Split, Shape], MemoryBudget]
    setup_at: Callable[[Split, MemoryBudget], Setup | None]  # None: no prediction
    few_stages: bool = False  # a pipeline only where fewer stages hold no request of the workload


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateLayout:
    """A split with the shape that it serves, its memory, and its speed."""

    split: Split
    shape: Shape
    budget: MemoryBudget
    point: Point | None = None  # at the requests that the goal looks at
    in_time: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The layout that is taken, None where none fits, and why others were passed over."""

    layout: CandidateLayout | None
    passed_over: tuple[Rejected, ...] = ()


def choose_layout(ways: Candidates, target: Objective) -> Choice:
    """Choose the best layout for the target; account for every split that was looked at."""
    tried: list[CandidateLayout] = []
    too_small: dict[str, Rejected] = {}
    for split in ways.splits:
        budgets = ((shape, ways.budget_at(split, shape)) for shape in ways.shapes)
        shape, budget = next((pair for pair in budgets if pair[1].fits), (None, None))
        if shape is not None and budget is not None:
            tried.append(_serve(ways, split, shape, budget, target))
        else:
            cut = explain_cut(split, ways.budget_at(split, ways.shapes[-1]))
            too_small.setdefault(cut.what, cut)
    if not tried:
        return Choice(layout=None, passed_over=tuple(too_small.values()))
    best = max(tried, key=lambda layout: _rank(ways, layout, target))
    slower = [_explain_slower(one, best, target) for one in tried if one is not best and one.point]
    return Choice(layout=best, passed_over=(*too_small.values(), *slower))


def _rank(
    ways: Candidates, layout: CandidateLayout, target: Objective
) -> tuple[float | tuple[float, ...], ...]:
    """Return what is larger for the better layout."""
    return (
        _holds_workload(layout, target),
        -layout.split.pp_degree if ways.few_stages else 0,
        worth_of(layout.point, target),
        -layout.split.pp_degree,
        layout.shape.max_total_tokens,
        layout.split.devices,
    )


def _holds_workload(layout: CandidateLayout, target: Objective) -> bool:
    """Return whether a request of the workload fits its length and its cache."""
    tokens = target.workload.tokens
    return layout.shape.max_total_tokens >= tokens and layout.budget.count_requests(tokens) >= 1


def _serve(
    ways: Candidates, split: Split, shape: Shape, least: MemoryBudget, target: Objective
) -> CandidateLayout:
    """Find the requests at once for a split that fits, `least` with the shape, and predict it.

    More requests at once than the most that help are not taken: they wait instead.
    """
    copies = split.copies
    setup = ways.setup_at(split, least)
    alone = predict_point(setup, target.workload, 1) if setup else None
    tokens = min(target.workload.tokens, shape.max_total_tokens)

    def at(batch: int) -> Shape:
        return replace(shape, max_batch=batch)

    def fits(batch: int) -> bool:
        budget = ways.budget_at(split, at(batch))
        return budget.fits and budget.count_requests(tokens) >= batch

    def in_time(batch: int) -> bool:
        if setup is None or alone is None:
            return True
        return _in_time(predict_point(setup, target.workload, batch * copies), alone, target)

    def helps(batch: int) -> bool:
        if setup is None or batch < 2:
            return True
        fewer, more = (
            predict_point(setup, target.workload, copies * number).output_tokens_s
            for number in (batch - 1, batch)
        )
        return more >= fewer

    batch = ways.batch
    if batch is None:
        wanted = -(-target.workload.concurrency // copies) or ways.most
        batch = choose_concurrency(
            min(ways.most, wanted), fits, lambda number: in_time(number) and helps(number)
        )
    budget = ways.budget_at(split, at(batch))
    point = None
    if setup is not None:
        held = max(1, min(batch, budget.count_requests(tokens))) * copies
        many = min(held, target.workload.concurrency or held)
        looked_at = (target.workload.concurrency and many) or 1
        requests = looked_at if target.goal == "latency" else many
        point = predict_point(setup, target.workload, requests)
    return CandidateLayout(
        split=split,
        shape=at(batch),
        budget=budget,
        point=point,
        in_time=point is None or keeps_limits(point, target),
    )


def _in_time(point: Point, alone: Point, target: Objective) -> bool:
    """Decide whether requests may be computed together.

    Where even one alone misses a limit, fewer at once would not keep it either: then they may
    slow each other down as much as a goal of low latency lets them.
    """
    hardly_slower = point.tpot_s <= LATENCY_SLACK * alone.tpot_s
    if not keeps_limits(alone, target):
        return hardly_slower
    few = target.goal == "latency" and not target.workload.concurrency
    return keeps_limits(point, target) and (hardly_slower or not few)


def keeps_limits(point: Point, target: Objective) -> bool:
    """Decide whether each token comes in time, and the first one where that is limited."""
    return point.tpot_s <= target.tpot_limit_s and (
        target.ttft_limit_s is None or point.first_token_s <= target.ttft_limit_s
    )


def worth_of(point: Point | None, target: Objective) -> tuple[float, ...]:
    """Return what is larger for what serves the target better; least without a prediction."""
    if point is None:
        return (-1.0,)
    in_time = keeps_limits(point, target)
    if target.goal == "latency":
        return (float(in_time), -point.tpot_s, -point.prefill_s)
    if not in_time:
        return (0.0, -point.tpot_s)
    return (1.0, point.output_tokens_s)


def _explain_slower(one: CandidateLayout, best: CandidateLayout, target: Objective) -> Rejected:
    if worth_of(one.point, target) > worth_of(best.point, target):
        reason = f"{one.split.words} has more stages than tp_degree and dp_degree need: "
        reason += _speed(one, target)
        return Rejected(what=one.split.words.lower(), code="split-unasked", reason=reason)
    if worth_of(one.point, target) == worth_of(best.point, target):
        reason = f"{one.split.words} is predicted to be as fast as {best.split.words}"
        return Rejected(what=one.split.words.lower(), code="split-alike", reason=reason)
    return Rejected(
        what=one.split.words.lower(),
        code="split-slower",
        reason=f"{_speed(one, target)}; {_speed(best, target)}",
    )


def _speed(layout: CandidateLayout, target: Objective) -> str:
    point = layout.point
    assert point is not None
    if target.goal == "latency":
        figure = f"{point.tpot_s * 1e3:,.1f} ms per token"
        if not layout.in_time and target.ttft_limit_s is not None:
            figure += f", {point.first_token_s * 1e3:,.0f} ms to the first"
    else:
        figure = f"{point.output_tokens_s:,.0f} tokens/s"
        figure += "" if layout.in_time else f", too late at {point.tpot_s * 1e3:,.0f} ms per token"
    return f"{layout.split.words} is predicted to give {figure} at {point.concurrency} at once"
