"""Cold starts within a report of loads: a row a phase, measured beside predicted."""

from __future__ import annotations

from collections.abc import Iterator

from packager.addons.bench.names import short_names
from packager.addons.bench.startup_text import HEADER, start_rows
from packager.addons.bench.tables import columns_of
from packager.core.bench import BenchReport
from packager.core.reports.report import Row, Table, word_columns
from packager.estimate.performance.report_startup import GUESSED, advice_words


def start_table(report: BenchReport) -> Table | None:
    """Return every measured or predicted phase; None without a start."""
    names = short_names([variant.name for variant in report.variants])
    started = [
        (place, names[place], variant.started)
        for place, variant in enumerate(report.variants)
        if variant.started is not None and variant.started.starts
    ]
    if not started:
        return None
    variant, *_ = columns_of(report)
    return Table(
        title="Cold start",
        columns=(variant, *word_columns(*HEADER)),  # with units: seconds and minutes
        rows=tuple(
            Row((name, *cells), series=place)
            for place, name, found in started
            for cells in start_rows(found)
        ),
    )


def start_notes(report: BenchReport) -> Iterator[str]:
    """Yield what a reader must know beside the figures, and what to change next."""
    names = short_names([variant.name for variant in report.variants])
    started = [
        (name, variant.started)
        for name, variant in zip(names, report.variants, strict=True)
        if variant.started is not None and variant.started.starts
    ]
    predicted = [found.predicted for _, found in started if found.predicted is not None]
    if predicted:
        yield "predicted for nodes that have nothing, from the fastest disk to the slowest"
    phases = [phase for one in predicted for node in one.nodes for phase in node.phases]
    if any(phase.basis == "guess" for phase in phases):
        yield f"{GUESSED} is guessed"
    for name, found in started:
        if found.next is not None:
            yield f"{name}, next: {advice_words(found.next)}"
