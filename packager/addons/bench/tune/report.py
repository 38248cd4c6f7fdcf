"""Report of a tune, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packager.core.reports.text import table_lines, wrapped
from packager.core.text import escape
from packager.core.tuning import NotTried, TunedCandidate, TuneReport
from packager.core.units import counted
from packager.optimize.steps.report import duration

_KINDS = {"refused": "refused", "hopeless": "too slow by prediction"}


def tune_lines(report: TuneReport) -> Iterator[str]:
    """Return the decision first, then every candidate, then what was not measured and why."""
    levels = ", ".join(map(str, report.concurrency))
    yield from wrapped("model", escape(f"{report.model} on {report.instance}"))
    yield from wrapped("goal", f"{report.goal}: {report.unit} at concurrency {levels}")
    yield from wrapped("best", escape(_decision(report)))
    for image in report.images:
        yield from wrapped("image", escape(image))
    yield from wrapped("measured", _effort(report))
    yield ""
    header = ("candidate", "result", "rounds", report.unit, "95 % interval", "predicted")
    yield from table_lines(header, [_cells(one) for one in report.candidates])
    failed = [one for one in report.candidates if one.reason]
    if failed:
        yield ""
    for one in failed:
        yield from wrapped("failed", escape(f"{one.name}, {_STAGES[one.stage or '']}{one.reason}"))
    yield from _not_tried_lines(report.not_tried)


def field_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Return what would be measured, of the document that `results.field_document` makes."""
    levels = ", ".join(map(str, found["concurrency"]))
    yield from wrapped("model", escape(f"{found['model']} on {found['instance']}"))
    yield from wrapped("goal", f"{found['goal']}: {found['unit']} at concurrency {levels}")
    count, most = len(found["candidates"]), found["measurements"]
    rounds = f"at most {most} of {found['exhaustive']} rounds by default"
    yield from wrapped("measures", f"{counted(count, 'candidate')}, {rounds}")
    yield ""
    rows = [
        (escape(one["name"]), "" if one["predicted"] is None else _told(one))
        for one in found["candidates"]
    ]
    yield from table_lines(("candidate", f"predicted {found['unit']}"), rows)
    yield from _not_tried_lines([NotTried.model_validate(one) for one in found["not_tried"]])


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
    told = "" if one.predicted is None else f"{_figure(one.predicted)} ±{one.band or 0:.0%}"
    if one.score is not None and one.score < 0:
        score, interval = f"{-one.score:.2f} times a limit", ""
    else:
        score = "" if one.score is None else _figure(one.score)
    return (escape(one.name), state_text, str(one.rounds), score, interval, told)


def _interval(low: float, high: float) -> str:
    return f"{_figure(max(0.0, low))} to {_figure(high)}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _not_tried_lines(found: Sequence[NotTried]) -> Iterator[str]:
    shown = [one for one in found if one.kind in _KINDS]
    if found:
        yield ""
    for one in shown:
        yield from wrapped("left out", escape(f"{one.name}, {_KINDS[one.kind]}: {one.why}"))
    same = sum(one.kind == "same" for one in found)
    if same:
        words = counted(same, "combination")
        like = "another" if same == 1 else "others"
        yield from wrapped("left out", f"{words} that would build the same as {like}")
