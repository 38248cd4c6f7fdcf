"""Report of a tune, from its journal and its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from packager.addons.bench.tune.candidates import Field, TuneCandidate
from packager.addons.bench.tune.halving import Done, Standing, default_budget
from packager.addons.bench.tune.journal import Built, Event, Rated, TuneJournal
from packager.addons.bench.tune.score import UNITS
from packager.addons.bench.tune.session import Race, failures_in, spent_seconds
from packager.core.bench import BenchLoad
from packager.core.tuning import NotTried, TunedCandidate, TuneReport
from packager.core.version import __version__

State = Literal["best", "tied", "worse", "failed", "not measured"]


def make_report(
    field: Field,
    race: Race,
    done: Done,
    journal: TuneJournal,
    *,
    model: str,
    instance: str,
    concurrency: Sequence[int],
) -> TuneReport:
    """Return the report of a tune, without images and measurements, which the caller adds."""
    by_id = {one.id: one for one in field.candidates}
    seconds = spent_seconds(journal.events)
    best = by_id[done.best] if done.best else None
    rows = tuple(
        _row(by_id[one.candidate], one, done, race, journal.events) for one in done.standings
    )
    best_score = next((one.score for one in rows if one.state == "best"), None)
    usd = seconds / 3600 * race.budget.usd_hour if race.budget.usd_hour else None
    return TuneReport(
        packager_version=__version__,
        model=model,
        instance=instance,
        goal=race.goal,
        unit=UNITS[race.goal],
        concurrency=tuple(concurrency),
        started=journal.header.started,
        journal=str(journal.path),
        ended=done.reason,
        best=best.name if best else None,
        keeps_limits=None if best_score is None else best_score > 0,
        measurements=measurements_of(field, journal.events),
        exhaustive=len(field.candidates) * race.rounds,
        seconds=round(seconds, 1),
        usd=None if usd is None else round(usd, 4),
        candidates=rows,
        not_tried=tuple(
            NotTried(name=one.name, kind=one.kind, why=one.why) for one in field.dropped
        ),
        request=None
        if best is None
        else best.request.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
    )


def field_document(
    field: Field, race: Race, *, model: str, instance: str, concurrency: Sequence[int]
) -> dict[str, Any]:
    """Return what would be measured, the most promising first, and what would not."""
    return {
        "model": model,
        "instance": instance,
        "goal": race.goal,
        "unit": UNITS[race.goal],
        "concurrency": list(concurrency),
        "candidates": [
            {
                "id": one.id,
                "name": one.name,
                "predicted": one.prediction.worth(race.goal) if one.prediction else None,
                "band": one.prediction.band if one.prediction else None,
            }
            for one in field.candidates
        ],
        "not_tried": [
            {"name": one.name, "kind": one.kind, "why": one.why} for one in field.dropped
        ],
        "measurements": default_budget(len(field.candidates), race.rounds),
        "exhaustive": len(field.candidates) * race.rounds,
    }


def measurements_of(field: Field, events: Sequence[Event]) -> int:
    """Count the rounds that were measured of these candidates."""
    known = {one.id for one in field.candidates}
    return sum(isinstance(one, Rated) and one.candidate in known for one in events)


def loads_of(events: Sequence[Event], candidate: str) -> tuple[tuple[BenchLoad, ...], ...]:
    """Return the loads of a candidate, round by round."""
    return tuple(
        one.loads for one in events if isinstance(one, Rated) and one.candidate == candidate
    )


def _row(
    candidate: TuneCandidate, standing: Standing, done: Done, race: Race, events: Sequence[Event]
) -> TunedCandidate:
    failure = failures_in(events).get(candidate.id)
    builds = [one for one in events if isinstance(one, Built) and one.candidate == candidate.id]
    interval, prediction = standing.interval, candidate.prediction
    return TunedCandidate(
        id=candidate.id,
        name=candidate.name,
        state=_state(standing, done),
        rounds=len(standing.rounds),
        score=None if interval is None else interval.mean,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        predicted=prediction.worth(race.goal) if prediction else None,
        band=prediction.band if prediction else None,
        dropped_after=None if standing.dropped_at is None else standing.dropped_at + 1,
        image=builds[-1].image if builds else None,
        digest=builds[-1].digest if builds else None,
        build_s=builds[-1].seconds if builds else None,
        stage=failure.stage if failure and standing.failed else None,
        reason=failure.reason if failure and standing.failed else None,
    )


def _state(standing: Standing, done: Done) -> State:
    if standing.failed:
        return "failed"
    if standing.candidate == done.best:
        return "best"
    if standing.interval is None:
        return "not measured"
    return "tied" if standing.ties_with_best else "worse"
