"""Successive halving: which candidate is measured next, and when it is enough.

Every candidate is measured once, the better half a second time, the better half of those a third
(Jamieson and Talwalkar, "Non-stochastic best arm identification", 2016).  Unlike there, a candidate
whose interval overlaps the best one's stays where the budget allows: it may be as good.

Pure: the next step follows from the measurements, so a killed run continues where it was.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from packager.addons.bench.intervals import Interval, t_quantile

ROUNDS = 3  # of a candidate that stays to the end
NOISE = 0.03  # of one measurement, as a share, before it is measured
NOISE_FREEDOM = 4  # how many measurements that guess is worth
BUDGET_SHARE = 0.6  # of measuring every candidate in every round
FINALISTS = 2  # that are measured in every round

StopReason = Literal["finished", "budget", "all-failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCandidate:
    """One measurement, in the order in which they were made."""

    candidate: str
    score: float | None  # higher is better; None: it failed, and is not measured again
    cost: float = 1.0  # in the budget's unit: seconds, dollars, or measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvingState:
    """Candidates, what may be spent on them, and what is known by now."""

    candidates: tuple[str, ...]  # the most promising first
    measured: tuple[MeasuredCandidate, ...] = ()
    budget: float | None = None  # in the costs' unit; None: no limit
    rounds: int = ROUNDS
    seed: int = 0  # decides between equals, and the order of measuring after the first stage


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvingWork:
    """Measure this candidate for one round."""

    candidate: str
    round: int  # of this candidate, from 0
    stage: int  # from 0: how often candidates were dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one candidate ended."""

    candidate: str
    rounds: tuple[float, ...]
    interval: Interval | None  # None: it was never measured, or failed
    dropped_at: int | None = None  # the stage whose end it did not survive
    failed: bool = False
    ties_with_best: bool = False  # both stayed, and their intervals overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The end: no more measurements are worth it, or paid for."""

    best: str | None  # None: unmeasured
    reason: StopReason
    standings: tuple[Standing, ...]  # best first, then those that stayed longest
    measurements: int
    exhaustive: int  # measurements, had every candidate been measured in every round


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """Scores by candidate, as far as a stage looks at them."""

    scores: Mapping[str, tuple[float, ...]]
    failed: frozenset[str]
    rank: Mapping[str, int]  # decides between equal scores


def default_budget(candidates: int, rounds: int = ROUNDS) -> int:
    """Return a budget in measurements: 60 % of all, and enough to compare two to the end."""
    least = candidates + min(FINALISTS, candidates) * (rounds - 1)
    return max(least, int(BUDGET_SHARE * candidates * rounds))


def next_work(state: HalvingState) -> HalvingWork | Done:
    """Decide what is measured next, or who won."""
    field = _field(state)
    alive = [name for name in state.candidates if name not in field.failed]
    dropped: dict[str, int] = {}
    for stage in range(state.rounds):
        waiting = [name for name in alive if len(field.scores[name]) <= stage]
        if waiting:
            name = min(waiting, key=lambda one: _turn(state, field, one, stage))
            if not _is_affordable(state, name):
                return _done(state, field, dropped, "budget")
            return HalvingWork(candidate=name, round=stage, stage=stage)
        if stage + 1 < state.rounds:
            kept = _survivors(state, field, alive, stage)
            dropped.update((name, stage) for name in alive if name not in kept)
            alive = [name for name in alive if name in kept]
    return _done(state, field, dropped, "finished" if alive else "all-failed")


def _survivors(
    state: HalvingState, field: _Field, alive: Sequence[str], stage: int
) -> frozenset[str]:
    """Keep the better half, and of the rest those that may be as good, as the budget allows."""
    if not alive:
        return frozenset()
    seen = {name: scores[: stage + 1] for name, scores in field.scores.items()}
    intervals = _intervals(seen)
    order = _best_first(alive, intervals, field)
    half = max(min(FINALISTS, len(order)), len(order) // 2)
    best = intervals[order[0]]
    overlapping = [name for name in order[half:] if intervals[name].high >= best.low]
    wanted = half + len(overlapping)
    return frozenset(order[: _affordable(state, wanted, stage)])


def _affordable(state: HalvingState, wanted: int, stage: int) -> int:
    """Return how many of the best may stay, if two shall be measured to the end."""
    if state.budget is None:
        return wanted
    counted: dict[str, int] = {}
    costs = []
    for one in state.measured:
        counted[one.candidate] = counted.get(one.candidate, 0) + 1
        if counted[one.candidate] <= stage + 1:  # what later stages cost was not known then
            costs.append(one.cost)
    spent = math.fsum(costs)
    paid = [cost for cost in costs if cost > 0]  # a failed build may have taken no time
    mean_cost = spent / max(1, len(paid))
    if mean_cost <= 0:
        return wanted
    measurements = (state.budget - spent) / mean_cost + 1e-9
    later_stages = state.rounds - stage - 2
    most = math.floor(measurements - FINALISTS * later_stages)
    return min(wanted, max(FINALISTS, most))


def _is_affordable(state: HalvingState, name: str) -> bool:
    if state.budget is None:
        return True
    spent = math.fsum(one.cost for one in state.measured)
    own = [one.cost for one in state.measured if one.candidate == name]
    known = own or [one.cost for one in state.measured]
    expected = math.fsum(known) / len(known) if known else 0.0
    return spent < state.budget and spent + expected <= state.budget * (1 + 1e-9)


def _intervals(scores: Mapping[str, tuple[float, ...]]) -> dict[str, Interval]:
    """Compute intervals with one noise for all, as a share of each mean.

    One candidate's two or three rounds say little about its noise; those of all together, and a
    guess of the noise worth four measurements, say enough from the first stage on.  Scores on both
    sides of 0 are no noise but a limit that is sometimes kept: they do not count.
    """
    squares, freedom = NOISE_FREEDOM * NOISE**2, NOISE_FREEDOM
    means = {name: math.fsum(values) / len(values) for name, values in scores.items() if values}
    for name, mean in means.items():
        if len(scores[name]) > 1 and min(scores[name]) * max(scores[name]) > 0:
            squares += math.fsum((value / mean - 1) ** 2 for value in scores[name])
            freedom += len(scores[name]) - 1
    half = t_quantile(freedom) * math.sqrt(squares / freedom)
    found = {}
    for name, mean in means.items():
        around = abs(mean) * half / math.sqrt(len(scores[name]))
        found[name] = Interval(mean=mean, low=mean - around, high=mean + around)
    return found


def _field(state: HalvingState) -> _Field:
    scores: dict[str, list[float]] = {name: [] for name in state.candidates}
    failed = set()
    for one in state.measured:
        if one.candidate not in scores:
            continue  # of an earlier run with other candidates: paid for, and of no use
        if one.score is None or not math.isfinite(one.score):
            failed.add(one.candidate)
        else:
            scores[one.candidate].append(one.score)
    order = sorted(scores)
    random.Random(state.seed).shuffle(order)
    return _Field(
        scores={name: tuple(values) for name, values in scores.items()},
        failed=frozenset(failed),
        rank={name: place for place, name in enumerate(order)},
    )


def _turn(state: HalvingState, field: _Field, name: str, stage: int) -> int:
    """Return a candidate's turn in a stage: another one begins every time.

    In the first stage the order is the caller's: a budget that ends there has seen the promising.
    """
    if stage == 0:
        return state.candidates.index(name)
    return (field.rank[name] + stage * (1 + len(state.candidates) // 2)) % len(state.candidates)


def _best_first(
    names: Sequence[str], intervals: Mapping[str, Interval], field: _Field
) -> list[str]:
    return sorted(names, key=lambda name: (-intervals[name].mean, field.rank[name]))


def _done(
    state: HalvingState, field: _Field, dropped: Mapping[str, int], reason: StopReason
) -> Done:
    intervals = _intervals(field.scores)
    measured = [name for name in intervals if name not in field.failed]
    order = sorted(
        _best_first(measured, intervals, field),
        key=lambda name: -dropped.get(name, state.rounds),  # stable: best first among equals
    )
    best = order[0] if order else None
    order += [name for name in state.candidates if name not in order]
    standings = []
    for name in order:
        is_out = name in field.failed or name not in intervals
        standings.append(
            Standing(
                candidate=name,
                rounds=field.scores[name],
                interval=None if is_out else intervals[name],
                dropped_at=dropped.get(name),
                failed=name in field.failed,
                ties_with_best=best is not None
                and name != best
                and not is_out
                and name not in dropped
                and intervals[name].high >= intervals[best].low,
            )
        )
    return Done(
        best=best,
        reason=reason,
        standings=tuple(standings),
        measurements=len(state.measured),
        exhaustive=len(state.candidates) * state.rounds,
    )
