"""Benchmarks as text: the decision, then the tables of their page."""

from __future__ import annotations

from collections.abc import Iterator

from packager.bench.decision import Goal, decide
from packager.bench.page_tables import (
    boundary_sentences,
    comparison_table,
    fault_table,
    goodput_table,
    losses,
    note_sentences,
    predicted_table,
    quality_table,
)
from packager.bench.report_html import when_words, workload_words
from packager.bench.tables import (
    NOTHING,
    Table,
    latency_table,
    price_table,
    speculation_table,
    throughput_table,
)
from packager.core.bench import BenchReport
from packager.core.text import escape
from packager.reports.text import right_table_lines, wrapped


def summary_lines(report: BenchReport, goal: Goal | None = None) -> Iterator[str]:
    """Yield what the page shows: which variant to take, what was measured, every table."""
    decision = decide(report, goal)
    yield from _told(decision.verdict.lower(), decision.sentence)
    for doubt in decision.doubts:
        yield from _told("but", doubt)
    measured = (report.machine, workload_words(report.workload), when_words(report.measured))
    yield from _told("measured", ", ".join(filter(None, measured)))
    tables = (
        latency_table(report),
        throughput_table(report),
        price_table(report),
        speculation_table(report),
        comparison_table(report),
        goodput_table(report),
        predicted_table(report),
        quality_table(report),
        fault_table(report),
    )
    for table in tables:
        if table is not None and table.rows:
            yield from _lines(table)
    notes = [
        *(("found", words) for words in boundary_sentences(report)),
        *(("lost", words) for words in losses(report)),
        *(("note", words) for words in note_sentences(report)),
    ]
    if notes:
        yield ""
    for label, words in notes:
        yield from _told(label, words)


def _lines(table: Table) -> Iterator[str]:
    """Yield a table without the columns in which nothing is known; nothing of an empty one."""
    shown = [
        column
        for column in zip(table.columns, *(row.cells for row in table.rows), strict=True)
        if set(column[1:]) != {NOTHING}
    ]
    if len(shown) <= 2:  # variant and load alone
        return
    yield ""
    yield escape(table.title)
    header, *rows = zip(*shown, strict=True)
    yield from right_table_lines(header, rows)


def _told(label: str, words: str) -> Iterator[str]:
    begun = f"{label:<10} " if len(label) > 10 else label
    yield from wrapped(begun, escape(words))
