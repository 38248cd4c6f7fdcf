"""A tune: candidates are built and measured by turns, until the best is known or the budget ends.

What comes next is computed from the journal alone (`halving`), and what was done is written there
before the next work begins.  A run that was killed therefore ends as one that was not, as long as
its budget is not of time: then it depends on how long things took.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from packager.addons.bench.tune.candidates import Field, TuneCandidate
from packager.addons.bench.tune.halving import (
    ROUNDS,
    Done,
    HalvingState,
    HalvingWork,
    MeasuredCandidate,
    default_budget,
    next_work,
)
from packager.addons.bench.tune.journal import Built, Event, Failed, Rated, Retried, TuneJournal
from packager.addons.bench.tune.score import score_of, why_useless
from packager.core.bench import BenchLoad, Limits
from packager.core.errors import (
    OutputFailed,
    PackagerError,
    ToolUnavailable,
    Unavailable,
    UsageError,
)
from packager.core.events import EventSink, StepEvent, ignore
from packager.estimate.performance.presets import Goal

STEP = "measure"  # of progress
NO_LIMITS = Limits()
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneBudget:
    """What may be spent, the work of earlier runs included. None: no limit of that kind."""

    seconds: float | None = None  # of building, starting and measuring
    usd: float | None = None
    measurements: int | None = None  # rounds of a candidate
    usd_hour: float | None = None  # of the instance

    def __post_init__(self) -> None:
        if self.usd is not None and not self.usd_hour:
            raise UsageError(
                "a budget in dollars needs the price of an hour, and none is known",
                hint="add --usd-per-hour PRICE, or give --budget-time",
            )

    def share(self, seconds: float, measurements: int, candidates: int, rounds: int) -> float:
        """Return which share of the budget some work is: of the limit that it uses most."""
        shares = []
        if self.seconds is not None:
            shares.append(seconds / self.seconds)
        if self.usd is not None and self.usd_hour:
            shares.append(seconds / 3600 * self.usd_hour / self.usd)
        if self.measurements is not None or not shares:
            most = self.measurements or default_budget(candidates, rounds)
            shares.append(measurements / most)
        return max(shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One round of a candidate, as it was measured."""

    loads: tuple[BenchLoad, ...]
    start_s: float | None = None  # of the server, where it had to start


class Workshop(Protocol):
    """Builds candidates and measures them. A failure of the candidate is a `PackagerError`."""

    def build(self, candidate: TuneCandidate) -> Built:
        """Build the image; what is in the cache is not made again."""
        ...

    def measure(self, candidate: TuneCandidate, built: Built, number: int) -> Taken:
        """Start the image where it does not run, and put it under load for one round."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """How candidates are compared."""

    goal: Goal
    limits: Limits = NO_LIMITS
    budget: TuneBudget = TuneBudget()
    rounds: int = ROUNDS
    seed: int = 0


def tune(
    field: Field,
    race: Race,
    journal: TuneJournal,
    workshop: Workshop,
    *,
    on_event: EventSink = ignore,
    clock: Callable[[], float] = time.monotonic,
) -> Done:
    """Measure candidates until the best is known; raise errors that no candidate caused."""
    by_id = {one.id: one for one in field.candidates}
    while True:
        step = next_work(state_of(field, race, journal.events))
        if isinstance(step, Done):
            return step
        candidate = by_id[step.candidate]
        on_event(StepEvent(step=STEP, state="running", detail=_words(step, candidate)))
        journal_work(candidate, step.round, journal, workshop, clock, race.limits)


def journal_work(
    candidate: TuneCandidate,
    number: int,
    journal: TuneJournal,
    workshop: Workshop,
    clock: Callable[[], float],
    limits: Limits,
) -> None:
    """Build the candidate where it is not, measure one round, and write what came of it."""
    built = built_in(journal.events, candidate.id)
    began = clock()
    if built is None:
        try:
            built = workshop.build(candidate)
        except PackagerError as error:
            _refuse_common(error)
            journal.append(_failed(candidate, "build", error.message, clock() - began))
            return
        journal.append(built.model_copy(update={"seconds": round(clock() - began, 3)}))
    began = clock()
    try:
        taken = workshop.measure(candidate, built, number)
    except PackagerError as error:
        _refuse_common(error)
        journal.append(_failed(candidate, "start", error.message, clock() - began))
        return
    seconds = round(clock() - began, 3)
    if why := why_useless(taken.loads, limits):
        journal.append(_failed(candidate, "load", why, seconds))
        return
    journal.append(
        Rated(
            candidate=candidate.id,
            name=candidate.name,
            round=number,
            loads=taken.loads,
            seconds=seconds,
            start_s=taken.start_s,
        )
    )


def state_of(field: Field, race: Race, events: Iterable[Event]) -> HalvingState:
    """Return what `halving` decides by: scores and what they cost, in the order of the journal."""
    count = len(field.candidates)
    measured: list[MeasuredCandidate] = []
    building: dict[str, float] = {}  # seconds, until the candidate is measured

    def cost(seconds: float, measurements: int) -> float:
        return race.budget.share(seconds, measurements, count, race.rounds)

    for event in events:
        if isinstance(event, Retried):
            measured = [
                MeasuredCandidate(candidate="", score=None, cost=one.cost)
                if one.score is None
                else one
                for one in measured
            ]
        elif isinstance(event, Built):
            building[event.candidate] = building.get(event.candidate, 0.0) + event.seconds
        else:
            seconds = event.seconds + building.pop(event.candidate, 0.0)
            score = None
            if isinstance(event, Rated):
                score = score_of(event.loads, race.goal, race.limits)
            tried = isinstance(event, Rated) or event.stage == "load"
            measured.append(
                MeasuredCandidate(
                    candidate=event.candidate, score=score, cost=cost(seconds, int(tried))
                )
            )
    return HalvingState(
        candidates=tuple(one.id for one in field.candidates),
        measured=tuple(measured),
        budget=1.0,
        rounds=race.rounds,
        seed=race.seed,
    )


def built_in(events: Sequence[Event], candidate: str) -> Built | None:
    """Return how a candidate was built; None where it was not, or failed to start since."""
    found = [one for one in events if isinstance(one, Built) and one.candidate == candidate]
    return found[-1] if found else None


def failures_in(events: Iterable[Event]) -> dict[str, Failed]:
    """Return the failures that still count, by candidate."""
    found: dict[str, Failed] = {}
    for event in events:
        if isinstance(event, Retried):
            found.clear()
        elif isinstance(event, Failed):
            found[event.candidate] = event
    return found


def spent_seconds(events: Iterable[Event]) -> float:
    """Return the seconds of all work in a journal."""
    return math.fsum(one.seconds for one in events if not isinstance(one, Retried))


def _refuse_common(error: PackagerError) -> None:
    """Reraise errors that no candidate caused: a lost engine, a full disk."""
    is_lost = isinstance(error, Unavailable) and not isinstance(error, ToolUnavailable)
    if is_lost or isinstance(error, OutputFailed):
        raise error


def _failed(candidate: TuneCandidate, stage: str, reason: str, seconds: float) -> Failed:
    return Failed.model_validate(
        {
            "candidate": candidate.id,
            "name": candidate.name,
            "stage": stage,
            "reason": reason[:_LONGEST_REASON],
            "seconds": round(seconds, 3),
        }
    )


def _words(work: HalvingWork, candidate: TuneCandidate) -> str:
    return f"{candidate.name}, round {work.round + 1}"
