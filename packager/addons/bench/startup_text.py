"""Cold starts as a report: measured beside predicted, compared, what to change next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packager.addons.bench.names import short_names
from packager.core.reports.report import (
    Command,
    Lines,
    Pair,
    Pairs,
    Part,
    Report,
    Row,
    Section,
    Table,
    Words,
    word_columns,
)
from packager.core.startup import (
    PHASES,
    ComparedStart,
    PhaseName,
    Spread,
    StartedVariant,
    StartupReport,
)
from packager.core.units import counted, decimal, gib
from packager.estimate.performance.report_startup import GUESSED, NAMES, advice_words, seconds_words

NOTHING = "–"
_READING = (
    "measured figures are medians of the rounds, with 95 % intervals of their mean. Predicted "
    "ones are of the image's build record, for nodes with different disks; ~ is guessed"
)
HEADER = ("phase", "measured", "interval", "predicted")


def start_report(report: StartupReport) -> Report:
    """Return the starts of each image, comparisons, and how to measure them again."""
    names = short_names([one.name for one in report.startups])
    version = f"packager {report.packager_version}"
    origin = (report.machine, report.measured, counted(report.rounds, "round"), version)
    rounds = f"{report.rounds}, in turns; medians, 95 % intervals"
    head = Pairs((Pair("machine", report.machine), Pair("rounds", rounds)))
    incomplete = f"{report.incomplete}; starts are missing" if report.incomplete else ""
    after = [Words(words, label="compared") for words in _comparisons(report)]
    after += [
        Words(note, label="" if number else "notes") for number, note in enumerate(report.notes)
    ]
    if incomplete:
        after.append(Words(incomplete, label="incomplete"))
    return Report(
        kind="Cold start",
        title="Cold start" if len(names) > 1 else f"Cold start of {names[0]}",
        origin=tuple(filter(None, origin)),
        badge=("Incomplete", "note"),
        verdict=incomplete,
        sections=(
            Section(parts=(head,), medium="text"),
            *(_section(at, one) for at, one in enumerate(report.startups)),
            *((Section(key="compared", title="Compared", parts=tuple(after)),) if after else ()),
            Section(
                key="read",
                title="How to read this page",
                parts=(Words(_READING), Command(report.command, "measures this again")),
                medium="page",
            ),
        ),
        footer="Times are of the machine that they were measured on.",
        packager=report.packager_version,
    )


def _section(at: int, variant: StartedVariant) -> Section:
    parts: list[Part] = [Words(variant.name, "text", label="image")]
    if variant.starts:
        parts += [start_table(variant), *map(Words, _sentences(variant))]
    if variant.failure:
        parts.append(Pairs((Pair("failed", variant.failure, "error"),)))
    return Section(key=f"image{at}", title=variant.name, parts=tuple(parts))


def start_table(variant: StartedVariant) -> Table:
    """Return measured beside predicted phases."""
    return Table(
        columns=word_columns(*HEADER),
        rows=tuple(map(Row, start_rows(variant))),
        caption=f"Phases of the start of {variant.name}",
        is_right=True,
        indent=2,
    )


def brief_parts(report: StartupReport) -> Iterator[Part]:
    """Yield measured beside predicted phases, as `packager inspect` shows them."""
    for variant in report.startups:
        yield replace(start_table(variant), indent=4)
        if variant.next is not None:
            yield Lines((f"  next: {advice_words(variant.next)}",), "")


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
    seconds = [one.seconds for one in variant.predicted.nodes]
    return _range(min(seconds), max(seconds))


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
