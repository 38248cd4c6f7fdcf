"""A benchmark as a report: what was measured on what, the tables, comparisons and doubts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packager.addons.bench.decision import Goal, decide
from packager.addons.bench.names import load_words, short_names
from packager.addons.bench.page_charts import keys_of
from packager.addons.bench.page_tables import (
    boundary_sentences,
    boundary_words,
    comparison_table,
    fault_table,
    goodput_table,
    limit_words,
    losses,
    note_sentences,
    predicted_notes,
    predicted_table,
    price_sources,
    quality_table,
)
from packager.addons.bench.report_page import (
    FOOTER,
    TONES,
    first_sections,
    last_sections,
    origin_words,
    tiles_of,
    title_words,
)
from packager.addons.bench.start_table import start_notes, start_table
from packager.addons.bench.tables import (
    SAMPLES_OF_P99,
    TPOT,
    TTFT,
    adapter_table,
    latency_table,
    loads_of,
    price_of,
    price_table,
    rate_of,
    speculation_table,
    table_section,
    throughput_table,
    value,
    way_of,
)
from packager.addons.bench.verdict import describe
from packager.cli.serving.acceptance import source_words
from packager.core.bench import BenchReport, BenchVariant, BenchWorkload, Compared
from packager.core.bench_setup import BenchSetup
from packager.core.reports.report import Pair, Pairs, Report, Section, Words
from packager.core.units import gib, percent, usd

_MOST_NOTES = 8
_LONGEST_LABEL = 10
_PIECES = (
    "with a draft several tokens come at once: the time between pieces (ITL) is longer than the "
    "time per token (TPOT), by about the acceptance length. A draft is judged by its TPOT and its "
    "tokens a second"
)
_NOISE = (
    "more tokens a second are better, and fewer milliseconds. “noise” marks an interval that "
    "includes 1: the rounds do not tell these two apart"
)


def bench_report(
    report: BenchReport,
    goal: Goal | None = None,
    *,
    sources: tuple[str, ...] = (),
    command: str = "",
) -> Report:
    """Return a benchmark, or several that were merged.

    `goal` is what the best variant is best for.  `sources` are the files that it was made of, and
    `command` makes its page again.
    """
    decision = decide(report, goal)
    after = Section(parts=tuple(_after_tables(report, goal)), medium="text")
    return Report(
        kind="Benchmark",
        title=title_words(report),
        origin=origin_words(report),
        badge=(decision.verdict, TONES[decision.verdict]),
        verdict=decision.sentence,
        tiles=tuple(tiles_of(decision.pick)),
        doubts=decision.doubts,
        keys=keys_of(report),
        sections=(
            Section(parts=(Pairs(tuple(_head(report))),), medium="text"),
            *first_sections(report, decision.pick.goal if decision.pick else None),
            *_tables(report),
            after,
            *last_sections(report, sources, command),
        ),
        footer=FOOTER,
        packager=report.packager_version,
        is_wide=True,
    )


def _tables(report: BenchReport) -> Iterator[Section]:
    """Yield the figures, with what is said of them on a page."""
    half = "of each variant under each load; p50 is what half of the requests stay below, p99 what "
    fewest = min((load.answered for _, _, load in loads_of(report)), default=0)
    yield from table_section(
        "latency",
        latency_table(report),
        f"{half}99 of 100 do",
        notes=(f"no p99 of {fewest:,} answers: it takes {SAMPLES_OF_P99}",)
        if 0 < fewest < SAMPLES_OF_P99
        else (),
    )
    means = "of each variant under each load; means of all answered requests"
    yield from table_section("throughput", throughput_table(report), means)
    yield from table_section(
        "price",
        price_table(report),
        "US dollars per million tokens; prices of input and of output each charge the whole "
        "server to one stream: never add them",
        about=price_sources(report),
    )
    yield from table_section(
        "speculation",
        speculation_table(report),
        "medians; the last column is against the variant without a draft under the same load",
        short="Drafts",
        about=(_PIECES,),
    )
    yield from table_section(
        "adapters",
        adapter_table(report),
        "requests of each adapter alone; tokens a second are over the time of the whole load",
    )
    differences = comparison_table(report)
    rounds = (
        f", with 95 % intervals over {report.rounds} rounds"
        if report.rounds > 2
        else "; measured in too few rounds to tell noise"
    )
    for section in table_section(
        "differences",
        differences,
        f"how many times the first variant's figure under the same load{rounds}",
        short="Differences",
        about=(_NOISE,),
    ):
        yield replace(section, medium="page")
    yield from _limits(report)
    predicted = predicted_table(report)
    yield from table_section(
        "predicted",
        predicted,
        "what the plan predicted, beside what was measured",
        short="Predicted",
        notes=predicted_notes(predicted),
        about=("`packager plan --measured FILE` predicts by these measurements",),
    )
    intervals = ", with 95 % intervals of their mean" if report.rounds > 2 else ""
    yield from table_section(
        "starts",
        start_table(report),
        f"each phase, from a node that has nothing to the first token: medians{intervals}, beside "
        "what was predicted",
        notes=tuple(start_notes(report)),
    )
    for section in table_section("qualities", quality_table(report), ""):
        yield replace(section, medium="text")
    yield from _faults(report)


def _limits(report: BenchReport) -> Iterator[Section]:
    limits = limit_words(report.limits)
    sentences = [f"a request is good with {limits}"] if limits else []
    sentences += boundary_sentences(report)
    found = tuple(
        table_section(
            "limits",
            goodput_table(report),
            "share of the requests that kept all limits; those that failed did not",
            title="Limits",
            before=sentences,
        )
    )
    yield from found
    if not found and any(variant.boundary for variant in report.variants):
        parts = tuple(Words(words, is_soft=False) for words in sentences)
        yield Section(key="limits", title="Limits", short="Limits", parts=parts, medium="page")


def _faults(report: BenchReport) -> Iterator[Section]:
    lost = losses(report)
    found = tuple(
        table_section(
            "faults",
            fault_table(report),
            "requests without a whole answer, by reason; they are in no figure of speed",
            title="What went wrong",
            short="Failures",
            before=lost,
        )
    )
    yield from found
    if lost and not found:
        parts = tuple(Words(words, is_soft=False) for words in lost)
        title = "What went wrong"
        yield Section(key="faults", title=title, short="Failures", parts=parts, medium="page")


def brief_lines(report: BenchReport) -> Iterator[str]:
    """Yield a line for each load, as `packager inspect` shows them."""
    for _, _, load in loads_of(report):
        figures = (
            (rate_of(load), "{:,.1f} tokens/s"),
            (value(load, TTFT, "p50"), "TTFT {:,.1f} ms"),
            (value(load, TPOT, "p50"), "TPOT {:,.2f} ms"),
        )
        words = ", ".join(form.format(found) for found, form in figures if found is not None)
        price = price_of(load)
        cost = f", ${usd(price)} for a million {way_of(load)}put tokens" if price else ""
        yield f"{load_words(load)}: {words or 'no answer'}{cost}"


def request_words(workload: BenchWorkload) -> str:
    """Return what was sent, in a line."""
    counts = ((workload.input_tokens, "in"), (workload.output_tokens, "out"))
    lengths = ", ".join(
        f"{tokens:,.0f} tokens {where}" for tokens, where in counts if tokens is not None
    )
    data = f", of {workload.data!r}" if workload.data else ""
    who = f", for {workload.adapters}" if workload.adapters else ""
    return f"{workload.name}{f': {lengths}' if lengths else ''}{data}{who}; seed {workload.seed}"


def _head(report: BenchReport) -> Iterator[Pair]:
    if report.workload.name:  # "" for builds and cold starts
        yield Pair("requests", request_words(report.workload))
    yield Pair("limits", limit_words(report.limits))
    yield Pair("machine", report.machine)
    yield Pair("rounds", f"{report.rounds}, in turns" if report.rounds > 1 else "")
    names = short_names([variant.name for variant in report.variants])
    for name, variant in zip(names, report.variants, strict=True):
        label = "server" if len(report.variants) == 1 else name[:_LONGEST_LABEL]
        yield Pair(label, _variant_words(variant))
    for words in price_sources(report):
        yield Pair("price", words)


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


def _after_tables(report: BenchReport, goal: Goal | None) -> Iterator[Words]:
    several = len(report.variants) > 1
    for variant in report.variants:
        name = f"{variant.name}: " if several else ""
        if words := _acceptance_words(variant):
            yield Words(name + words, label="acceptance")
        if variant.boundary is not None:
            yield Words(name + boundary_words(variant.boundary), label="found")
        if variant.failure:
            yield Words(f"{variant.name}: {variant.failure}", label="failed")
    yield from _comparisons(report)
    if several:
        decision = decide(report, goal)
        yield Words(decision.sentence, label="so")
        yield from (Words(doubt, label="but") for doubt in decision.doubts)
    yield from (Words(words, label="lost") for words in losses(report))
    notes = note_sentences(report)
    for number, note in enumerate(notes[:_MOST_NOTES]):
        yield Words(note, label="" if number else "notes")
    if len(notes) > _MOST_NOTES:
        yield Words(f"{len(notes) - _MOST_NOTES} more with --format json.")
    if report.incomplete:
        words = f"{report.incomplete}; loads may be missing or short"
        yield Words(words, label="incomplete")


def _acceptance_words(variant: BenchVariant) -> str:
    """Return how many tokens a step of the heaviest load yielded; "" without a draft."""
    measured = [load.acceptance for load in variant.loads if load.acceptance]
    if not measured or measured[-1].length is None:
        return ""
    rate = measured[-1].rate
    taken = f", {percent(rate)} of the proposed tokens taken" if rate is not None else ""
    return f"{measured[-1].length:.2f} tokens a step{taken}, {source_words(measured[-1].source)}"


def _comparisons(report: BenchReport) -> Iterator[Words]:
    names = short_names([variant.name for variant in report.variants])
    by_name = {variant.name: name for variant, name in zip(report.variants, names, strict=True)}
    groups: dict[tuple[str, str], list[Compared]] = {}
    for one in report.compared:
        load = f"{one.rate:g} requests/s" if one.rate else f"{one.concurrency} at once"
        groups.setdefault((one.variant, load), []).append(one)
    for number, ((variant, load), found) in enumerate(groups.items()):
        words = f"{by_name.get(variant, variant)}, {load}: {describe(found)}"
        label = f"to {names[0]}"[:_LONGEST_LABEL] if number == 0 else ""
        yield Words(words, label=label)
