"""Cold starts as text and as a page: measured beside predicted, compared, what to change next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packager.addons.bench.names import short_names
from packager.core.reports.page import render_page
from packager.core.reports.text import right_table_lines, wrapped
from packager.core.startup import (
    PHASES,
    ComparedStart,
    PhaseName,
    Spread,
    StartedVariant,
    StartupReport,
)
from packager.core.text import escape
from packager.core.units import counted, decimal, gib
from packager.estimate.performance.report_startup import GUESSED, NAMES, advice_words, seconds_words

NOTHING = "–"
HEADER = ("phase", "measured", "interval", "predicted")


def startup_report_lines(report: StartupReport) -> Iterator[str]:
    """Yield the whole report."""
    if report.machine:
        yield from wrapped("machine", escape(report.machine))
    yield from wrapped("rounds", f"{report.rounds}, in turns; medians, 95 % intervals")
    for variant in report.startups:
        yield ""
        yield from wrapped("image", escape(variant.name))
        if variant.starts:
            yield from right_table_lines(HEADER, start_rows(variant))
            for words in _sentences(variant):
                yield from wrapped("", escape(words))
        if variant.failure:
            yield from wrapped("failed", escape(variant.failure))
    compared = list(_comparisons(report))
    if compared:
        yield ""
        for words in compared:
            yield from wrapped("compared", escape(words))
    for number, note in enumerate(report.notes):
        yield from wrapped("" if number else "notes", escape(note))
    if report.incomplete:
        yield from wrapped("incomplete", f"{report.incomplete}; starts are missing")


def brief_start_lines(report: StartupReport) -> Iterator[str]:
    """Yield measured beside predicted phases, as `packager inspect` shows them."""
    for variant in report.startups:
        yield from right_table_lines(HEADER, start_rows(variant))
        if variant.next is not None:
            yield escape(f"next: {advice_words(variant.next)}")


def startup_html(report: StartupReport) -> str:
    """Return the report as a self-contained page."""
    names = short_names([one.name for one in report.startups])
    page = {
        "trace": None,
        "packager": report.packager_version,
        "title": "Cold start" if len(names) > 1 else f"Cold start of {names[0]}",
        "origin": [
            words
            for words in (
                report.machine,
                report.measured,
                f"{report.rounds} rounds",
                f"packager {report.packager_version}",
            )
            if words
        ],
        "variants": [_values(one) for one in report.startups],
        "header": HEADER,
        "compared": list(_comparisons(report)),
        "notes": report.notes,
        "incomplete": report.incomplete,
        "repeat": report.command,
    }
    return render_page("startup.html.j2", page)


def _values(variant: StartedVariant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "rows": start_rows(variant) if variant.starts else [],
        "sentences": list(_sentences(variant)),
        "failure": variant.failure,
    }


def start_rows(variant: StartedVariant) -> list[tuple[str, ...]]:
    """Return a row a phase that was measured or predicted, and the sums."""
    rows: list[tuple[str, ...]] = []
    for name in PHASES:
        found, predicted = variant.phases.get(name), _predicted(variant, name)
        if found is not None or predicted != NOTHING:
            rows.append((NAMES[name], *_cells(found), predicted))
    if variant.untold is not None and variant.untold.median >= 0.1:
        rows.append(("not told", *_cells(variant.untold), NOTHING))
    rows.append(("ready after", *_cells(variant.ready), NOTHING))
    rows.append(("in all", *_cells(variant.seconds), _predicted_total(variant)))
    return rows


def _cells(found: Spread | None) -> tuple[str, str]:
    if found is None:
        return NOTHING, NOTHING
    if found.low is None or found.high is None:
        return seconds_words(found.median), NOTHING
    return seconds_words(found.median), f"{seconds_words(found.low)} to {seconds_words(found.high)}"


def _predicted(variant: StartedVariant, name: PhaseName) -> str:
    """Return what was predicted for nodes with different disks, as a range."""
    if variant.predicted is None:
        return NOTHING
    phases = [found for one in variant.predicted.nodes if (found := one.of(name))]
    known = [one.seconds for one in phases if one.seconds is not None]
    if not known:
        return NOTHING
    mark = GUESSED if any(one.basis == "guess" for one in phases) else ""
    return mark + _range(min(known), max(known))


def _predicted_total(variant: StartedVariant) -> str:
    if variant.predicted is None:
        return NOTHING
    told = [one.seconds for one in variant.predicted.nodes]
    return _range(min(told), max(told))


def _range(low: float, high: float) -> str:
    first, last = seconds_words(low), seconds_words(high)
    return first if first == last else f"{first} to {last}"


def _sentences(variant: StartedVariant) -> Iterator[str]:
    if variant.cpu_seconds is not None:
        words = f"{seconds_words(variant.cpu_seconds.median)} of processor time"
        if variant.peak_memory_bytes is not None:
            words += f", up to {gib(variant.peak_memory_bytes)} of memory"
        yield words
    pulled = [one.pulled_bytes for one in variant.starts if one.pulled_bytes is not None]
    if pulled:
        known = max(one.known_layers or 0 for one in variant.starts)
        there = (
            f"; other images in the engine have {counted(known, 'layer')} of it" if known else ""
        )
        yield f"{decimal(max(pulled))} were pulled{there}"
    said = {one.compiled for one in variant.starts if one.compiled}
    yield from sorted(said)
    if variant.next is not None:
        yield f"next: {advice_words(variant.next)}"


def _comparisons(report: StartupReport) -> Iterator[str]:
    names = {
        one.name: name
        for one, name in zip(
            report.startups, short_names([one.name for one in report.startups]), strict=True
        )
    }
    first = report.startups[0].name
    for variant in report.startups[1:]:
        parts = [
            f"{_phase(one)} {one.ratio:.2f}{_interval(one)}"
            for one in report.compared
            if one.variant == variant.name
        ]
        if parts:
            yield f"{names[variant.name]} over {names[first]}: {', '.join(parts)}"


def _phase(one: ComparedStart) -> str:
    known = {"seconds": "in all", "cpu_seconds": "processor time"}
    return known.get(one.phase) or one.phase.replace("_", " ")


def _interval(one: ComparedStart) -> str:
    if one.low is None or one.high is None:
        return ""
    noise = ", noise" if one.is_noise else ""
    return f" ({one.low:.2f} to {one.high:.2f}{noise})"
