"""A benchmark as text: what was measured on what, the tables, comparisons and doubts."""

from __future__ import annotations

from collections.abc import Iterator

from packager.addons.bench.decision import Goal, decide
from packager.addons.bench.names import load_words, short_names
from packager.addons.bench.page_tables import (
    boundary_words,
    fault_table,
    goodput_table,
    limit_words,
    losses,
    note_sentences,
    predicted_table,
    price_sources,
    quality_table,
)
from packager.addons.bench.start_table import start_table
from packager.addons.bench.tables import (
    NOTHING,
    OUTPUT,
    TPOT,
    TTFT,
    ReportTable,
    latency_table,
    loads_of,
    price_table,
    speculation_table,
    throughput_table,
    value,
)
from packager.addons.bench.verdict import describe
from packager.cli.serving.acceptance import source_words
from packager.core.bench import BenchReport, BenchVariant, BenchWorkload, Compared
from packager.core.bench_setup import BenchSetup
from packager.core.reports.text import right_table_lines, wrapped
from packager.core.text import escape
from packager.core.units import gib, percent, usd

_MOST_NOTES = 8
_LONGEST_LABEL = 10


def bench_lines(report: BenchReport, goal: Goal | None = None) -> Iterator[str]:
    """Yield the whole report; `goal` is what the best variant is best for."""
    yield from _head(report)
    tables = (
        latency_table(report),
        throughput_table(report),
        price_table(report),
        speculation_table(report),
        goodput_table(report),
        predicted_table(report),
        start_table(report),
        quality_table(report),
        fault_table(report),
    )
    for table in tables:
        if table is not None and table.rows:
            yield from _table_lines(table, alone=len(report.variants) == 1)
    after = list(_after_tables(report, goal))
    if after:
        yield ""
        yield from after


def brief_lines(report: BenchReport) -> Iterator[str]:
    """Yield a line for each load, as `packager inspect` shows them."""
    for _, _, load in loads_of(report):
        told = (
            (value(load, OUTPUT), "{:,.1f} tokens/s"),
            (value(load, TTFT, "p50"), "TTFT {:,.1f} ms"),
            (value(load, TPOT, "p50"), "TPOT {:,.2f} ms"),
        )
        words = ", ".join(form.format(found) for found, form in told if found is not None)
        price = load.prices.output if load.prices else None
        cost = f", ${usd(price)} for a million output tokens" if price is not None else ""
        yield f"{load_words(load)}: {words or 'no answer'}{cost}"


def request_words(workload: BenchWorkload) -> str:
    """Return what was sent, in a line."""
    counts = ((workload.input_tokens, "in"), (workload.output_tokens, "out"))
    lengths = ", ".join(
        f"{tokens:,.0f} tokens {where}" for tokens, where in counts if tokens is not None
    )
    data = f", of {workload.data!r}" if workload.data else ""
    return f"{workload.name}{f': {lengths}' if lengths else ''}{data}; seed {workload.seed}"


def _table_lines(table: ReportTable, *, alone: bool) -> Iterator[str]:
    """Yield a table without its empty columns.

    Leave out the column of names if there is one name, and a table without figures.
    """
    columns = zip(table.columns, *(row.cells for row in table.rows), strict=True)
    shown = [column for column in columns if set(column[1:]) != {NOTHING}]
    if len(shown) < 2 or (len(shown) == 2 and shown[1][0] == table.columns[1]):
        return
    yield ""
    yield table.title
    header, *rows = zip(*shown[1 if alone else 0 :], strict=True)
    yield from right_table_lines(header, rows)
    for note in table.notes:
        yield escape(f"  {note}")


def _head(report: BenchReport) -> Iterator[str]:
    if report.workload.name:  # "" for builds and cold starts
        yield from wrapped("requests", escape(request_words(report.workload)))
    if words := limit_words(report.limits):
        yield from wrapped("limits", words)
    if report.machine:
        yield from wrapped("machine", escape(report.machine))
    if report.rounds > 1:
        yield from wrapped("rounds", f"{report.rounds}, in turns")
    names = short_names([variant.name for variant in report.variants])
    for name, variant in zip(names, report.variants, strict=True):
        label = "server" if len(report.variants) == 1 else name[:_LONGEST_LABEL]
        yield from wrapped(escape(label), escape(_variant_words(variant)))
    for words in price_sources(report):
        yield from wrapped("price", escape(words))


def _variant_words(variant: BenchVariant) -> str:
    parts = [variant.name, *_setup_words(variant.setup)]
    if variant.start_s is not None:
        parts.append(f"ready after {variant.start_s:.1f} s")
    uses = [load.use for load in variant.loads if load.use]
    peaks = [use.peak_memory_bytes for use in uses if use.peak_memory_bytes is not None]
    if peaks:
        parts.append(f"up to {gib(max(peaks))} of memory")
    times = [use.cpu_seconds for use in uses if use.cpu_seconds is not None]
    if times:
        parts.append(f"{sum(times):,.1f} s of processor time under load")
    return ", ".join(parts)


def _setup_words(setup: BenchSetup) -> Iterator[str]:
    if setup.model:
        yield setup.model
    if setup.precision:
        yield setup.precision
    if setup.quantization not in (None, "none"):
        yield f"quantized by {setup.quantization}"
    if setup.draft not in (None, "none"):
        yield f"draft {setup.draft}"
    if setup.engine:
        yield setup.engine
    if setup.instance:
        yield f"for {setup.instance}"


def _after_tables(report: BenchReport, goal: Goal | None) -> Iterator[str]:
    several = len(report.variants) > 1
    for variant in report.variants:
        name = f"{variant.name}: " if several else ""
        if words := _acceptance_words(variant):
            yield from wrapped("acceptance", escape(name + words))
        if variant.boundary is not None:
            yield from wrapped("found", escape(name + boundary_words(variant.boundary)))
        if variant.failure:
            yield from wrapped("failed", escape(f"{variant.name}: {variant.failure}"))
    yield from _comparison_lines(report)
    if several:
        decision = decide(report, goal)
        yield from wrapped("so", escape(decision.sentence))
        for doubt in decision.doubts:
            yield from wrapped("but", escape(doubt))
    for words in losses(report):
        yield from wrapped("lost", escape(words))
    notes = note_sentences(report)
    for number, note in enumerate(notes[:_MOST_NOTES]):
        yield from wrapped("" if number else "notes", escape(note))
    if len(notes) > _MOST_NOTES:
        yield from wrapped("", f"{len(notes) - _MOST_NOTES} more with --format json.")
    if report.incomplete:
        yield from wrapped("incomplete", f"{report.incomplete}; loads may be missing or short")


def _acceptance_words(variant: BenchVariant) -> str:
    """Return how many tokens a step of the heaviest load yielded; "" without a draft."""
    told = [load.acceptance for load in variant.loads if load.acceptance]
    if not told or told[-1].length is None:
        return ""
    rate = told[-1].rate
    taken = f", {percent(rate)} of the proposed tokens taken" if rate is not None else ""
    return f"{told[-1].length:.2f} tokens a step{taken}, {source_words(told[-1].source)}"


def _comparison_lines(report: BenchReport) -> Iterator[str]:
    names = short_names([variant.name for variant in report.variants])
    by_name = {variant.name: name for variant, name in zip(report.variants, names, strict=True)}
    groups: dict[tuple[str, str], list[Compared]] = {}
    for one in report.compared:
        load = f"{one.rate:g} requests/s" if one.rate else f"{one.concurrency} at once"
        groups.setdefault((one.variant, load), []).append(one)
    for number, ((variant, load), found) in enumerate(groups.items()):
        words = f"{by_name.get(variant, variant)}, {load}: {describe(found)}"
        label = f"to {names[0]}"[:_LONGEST_LABEL] if number == 0 else ""
        yield from wrapped(escape(label), escape(words))
