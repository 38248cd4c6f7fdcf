"""Report of a tune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packager.core.reports.report import (
    Column,
    Pair,
    Pairs,
    Report,
    Row,
    Section,
    Table,
    number_columns,
)
from packager.core.tuning import NotTried, TunedCandidate, TuneReport
from packager.core.units import counted
from packager.optimize.steps.report import duration

_KINDS = {"refused": "refused", "hopeless": "too slow by prediction"}


def tune_report(report: TuneReport) -> Report:
    """Return the decision first, then every candidate, then what was not measured and why."""
    failed = tuple(
        Pair("failed", f"{one.name}, {_STAGES[one.stage or '']}{one.reason}")
        for one in report.candidates
        if one.reason
    )
    decision = (
        Pair("best", _decision(report)),
        *(Pair("image", image) for image in report.images),
        Pair("measured", _effort(report)),
    )
    return _report(
        (report.model, report.instance, report.goal, report.unit, report.concurrency),
        decision,
        Table(
            columns=(
                Column("candidate"),
                Column("result"),
                *number_columns("rounds", report.unit),
                *number_columns("95 % interval", "predicted"),
            ),
            rows=tuple(Row(_cells(one)) for one in report.candidates),
            caption="Candidates, the best first",
        ),
        failed,
        _not_tried(report.not_tried),
    )


def field_report(found: Mapping[str, Any]) -> Report:
    """Return what would be measured, of the document that `results.field_document` makes."""
    count, most = len(found["candidates"]), found["measurements"]
    rounds = f"at most {most} of {found['exhaustive']} rounds by default"
    rows = (
        Row((one["name"], "" if one["predicted"] is None else _told(one)))
        for one in found["candidates"]
    )
    return _report(
        tuple(found[name] for name in ("model", "instance", "goal", "unit", "concurrency")),
        (Pair("measures", f"{counted(count, 'candidate')}, {rounds}"),),
        Table(
            columns=(Column("candidate"), *number_columns(f"predicted {found['unit']}")),
            rows=tuple(rows),
            caption="Candidates",
        ),
        _not_tried([NotTried.model_validate(one) for one in found["not_tried"]]),
    )


def _report(
    about: tuple[Any, ...], pairs: tuple[Pair, ...], table: Table, *others: tuple[Pair, ...]
) -> Report:
    model, instance, goal, unit, concurrency = about
    levels = ", ".join(map(str, concurrency))
    head = (
        Pair("model", f"{model} on {instance}"),
        Pair("goal", f"{goal}: {unit} at concurrency {levels}"),
        *pairs,
    )
    rest = (
        Section(key=f"out{at}", title="Left out", parts=(Pairs(rows),))
        for at, rows in enumerate(others)
        if rows
    )
    return Report(
        kind="Tuning",
        title=f"{model} on {instance}",
        sections=(
            Section(key="decision", title="Decision", parts=(Pairs(head),)),
            Section(key="candidates", title="Candidates", parts=(table,)),
            *rest,
        ),
    )


def _told(one: Mapping[str, Any]) -> str:
    return f"{_figure(one['predicted'])} ±{one['band']:.0%}"


_STAGES = {"build": "when it was built: ", "start": "when it started: ", "load": "under load: "}


def _decision(report: TuneReport) -> str:
    best = report.candidates[0] if report.best is not None else None
    if best is None or best.score is None:
        return "none: no candidate could be measured"
    text = f"{best.name}"
    if report.keeps_limits is False:
        return f"{text}, which breaks the limits as all candidates do"
    text += f": {_figure(best.score)} {report.unit}"
    base = next((one for one in report.candidates if one.name == "as requested"), None)
    if base and base is not best and base.score is not None and base.score > 0:
        text += f", {best.score / base.score:.2f} times the request as it is"
    tied = [one.name for one in report.candidates if one.state == "tied"]
    if tied:
        text += f"; no measurable difference from it: {', '.join(tied)}"
    return text


def _effort(report: TuneReport) -> str:
    count = len(report.candidates)
    text = (
        f"{report.measurements} rounds of {count} candidates, {report.exhaustive} would be all; "
        f"{duration(report.seconds)} of work"
    )
    if report.usd is not None:
        text += f", ${report.usd:.2f}"
    return text + ("; the budget ended it" if report.ended == "budget" else "")


def _cells(one: TunedCandidate) -> tuple[str, ...]:
    interval = "" if one.low is None or one.high is None else _interval(one.low, one.high)
    state = one.state
    if one.state == "worse" and one.dropped_after:
        state_text = f"out after {one.dropped_after}"
    else:
        state_text = state
    prediction = "" if one.predicted is None else f"{_figure(one.predicted)} ±{one.band or 0:.0%}"
    if one.score is not None and one.score < 0:
        score, interval = f"{-one.score:.2f} times a limit", ""
    else:
        score = "" if one.score is None else _figure(one.score)
    return (one.name, state_text, str(one.rounds), score, interval, prediction)


def _interval(low: float, high: float) -> str:
    return f"{_figure(max(0.0, low))} to {_figure(high)}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _not_tried(found: Sequence[NotTried]) -> tuple[Pair, ...]:
    reasons = [f"{one.name}, {_KINDS[one.kind]}: {one.why}" for one in found if one.kind in _KINDS]
    same = sum(one.kind == "same" for one in found)
    if same:
        words = counted(same, "combination")
        like = "another" if same == 1 else "others"
        reasons.append(f"{words} that would build the same as {like}")
    return tuple(Pair("left out", words) for words in reasons)
