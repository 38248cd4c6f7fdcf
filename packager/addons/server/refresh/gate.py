"""Whether a new head is better than the one that serves, by intervals of paired figures. Pure.

Tokens of one answer depend on each other, so intervals of accepted length are over prompts: the
logarithm of each prompt's ratio.  Speeds are paired by round.  A limit that lies inside an interval
decides nothing, and what is not decided is no.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from packager.addons.bench.intervals import mean_interval
from packager.core.strict_models import StrictDocument

CheckState = Literal["yes", "no", "not decided"]
LEAST_OF_A_SET = 50  # prompts
GENERAL = "general"  # the set that is the same in every turn


class GateRules(StrictDocument):
    """Limits, as relative changes: 0.05 is five percent more."""

    accepted_length: float = 0.0  # of all captured prompts: more than
    worst_set: float = -0.03  # of each set with enough prompts: at least
    throughput: float = 0.0  # tokens a second: at least
    first_token: float = 0.10  # seconds until it, at the 95th percentile: at most
    identical: bool = True  # answers at temperature 0, but for ties
    against_plain: float = 0.0  # tokens a second, against no draft: at least


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPair:
    """Accepted lengths of one prompt with both heads."""

    group: str
    old: float
    new: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPair:
    """Speeds of one round under one load."""

    concurrency: int
    old_rate: float  # tokens a second
    new_rate: float
    plain_rate: float | None  # None where the old one has no draft: it is the plain one
    old_first_s: float  # until the first token, 95th percentile
    new_first_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadComparison:
    """Figures of a new head beside those of the old one."""

    prompts: tuple[PromptPair, ...]
    rounds: tuple[RoundPair, ...]
    compared: int  # answers
    different: int  # of them, but for ties


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """One limit, and where the figure lies; relative changes."""

    name: str
    state: CheckState
    limit: float
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 0

    def document(self) -> dict[str, Any]:
        """Return the check for JSON."""
        rounded = {
            name: None if value is None else round(value, 6)
            for name, value in (("mean", self.mean), ("low", self.low), ("high", self.high))
        }
        head = {"name": self.name, "state": self.state, "limit": self.limit}
        return {**head, **rounded, "count": self.count}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """The decision with everything that it rests on."""

    decision: CheckState
    checks: tuple[GateCheck, ...]
    draft_costs: bool  # the served load is slower with the new head than without any

    def document(self) -> dict[str, Any]:
        """Return the verdict for the journal."""
        return {
            "decision": self.decision,
            "checks": [one.document() for one in self.checks],
            "draft_costs": self.draft_costs,
        }


def decide(found: HeadComparison, rules: GateRules) -> GateVerdict:
    """Return whether the new head may serve: only if every check says yes."""
    checks = tuple(_checks(found, rules))
    states = {one.state for one in checks}
    decision: CheckState = "no" if "no" in states else "yes" if states == {"yes"} else "not decided"
    plain = next((one for one in checks if one.name.startswith("against no draft")), None)
    return GateVerdict(
        decision=decision,
        checks=checks,
        draft_costs=plain is not None and plain.high is not None and plain.high < 0,
    )


def _checks(found: HeadComparison, rules: GateRules) -> Iterator[GateCheck]:
    captured = [one for one in found.prompts if one.group != GENERAL]
    yield _at_least("accepted length", _lengths(captured), rules.accepted_length, strictly=True)
    for group in sorted({one.group for one in found.prompts}):
        members = [one for one in found.prompts if one.group == group]
        if len(members) >= LEAST_OF_A_SET or group == GENERAL:
            yield _at_least(f"set {group}", _lengths(members), rules.worst_set)
    for load in sorted({one.concurrency for one in found.rounds}):
        rounds = [one for one in found.rounds if one.concurrency == load]
        rates = [_log(one.new_rate, one.old_rate) for one in rounds]
        firsts = [_log(one.new_first_s, one.old_first_s) for one in rounds]
        yield _at_least(f"tokens a second at {load}", rates, rules.throughput)
        yield _at_most(f"first token at {load}", firsts, rules.first_token)
    served = max((one.concurrency for one in found.rounds), default=0)
    plains = [
        _log(one.new_rate, one.plain_rate)
        for one in found.rounds
        if one.concurrency == served and one.plain_rate is not None
    ]
    if plains:
        yield _at_least(f"against no draft at {served}", plains, rules.against_plain)
    if rules.identical:
        yield _identical(found)


def _identical(found: HeadComparison) -> GateCheck:
    share = found.different / found.compared if found.compared else None
    state: CheckState = "not decided" if share is None else "no" if found.different else "yes"
    return GateCheck(
        name="answers that differ", state=state, limit=0.0, mean=share, count=found.compared
    )


def _lengths(pairs: Iterable[PromptPair]) -> list[float]:
    return [_log(one.new, one.old) for one in pairs]


def _log(new: float, old: float) -> float:
    """Return the logarithm of a ratio; a figure of nothing is no ratio."""
    return math.log(new / old) if new > 0 and old > 0 else math.nan


def _at_least(
    name: str, logs: Sequence[float], limit: float, *, strictly: bool = False
) -> GateCheck:
    found = _interval(logs)
    if found is None:
        return GateCheck(name=name, state="not decided", limit=limit, count=len(logs))
    mean, low, high = found
    is_met = low > limit if strictly else low >= limit
    is_missed = high <= limit if strictly else high < limit
    state: CheckState = "yes" if is_met else "no" if is_missed else "not decided"
    return GateCheck(
        name=name, state=state, limit=limit, mean=mean, low=low, high=high, count=len(logs)
    )


def _at_most(name: str, logs: Sequence[float], limit: float) -> GateCheck:
    found = _interval(logs)
    if found is None:
        return GateCheck(name=name, state="not decided", limit=limit, count=len(logs))
    mean, low, high = found
    state: CheckState = "yes" if high <= limit else "no" if low > limit else "not decided"
    return GateCheck(
        name=name, state=state, limit=limit, mean=mean, low=low, high=high, count=len(logs)
    )


def _interval(logs: Sequence[float]) -> tuple[float, float, float] | None:
    """Return mean, low and high as relative changes; None where there is no interval."""
    if len(logs) < 2 or not all(map(math.isfinite, logs)):
        return None
    found = mean_interval(logs)
    mean, low, high = (math.expm1(one) for one in (found.mean, found.low, found.high))
    return mean, low, high
