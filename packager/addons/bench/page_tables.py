"""Tables and lists that only the page of a benchmark has."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from packager.addons.bench.compare import PRICE, REQUESTS
from packager.addons.bench.decision import is_within, quality_words
from packager.addons.bench.names import load_name, load_words, short_names
from packager.addons.bench.page_charts import is_reference
from packager.addons.bench.search import ERRORS, STATISTICS
from packager.addons.bench.tables import (
    LATENCY,
    NOTHING,
    OUTPUT,
    TPOT,
    TTFT,
    columns_of,
    failed,
    loads_of,
    numbers,
    value,
)
from packager.core.bench import (
    BenchLoad,
    BenchReport,
    BenchVariant,
    Boundary,
    Compared,
    Limits,
    Predicted,
)
from packager.core.reports.cells import fitted
from packager.core.reports.report import (
    Card,
    Cards,
    Column,
    Pair,
    Row,
    Table,
    number_columns,
    word_columns,
)
from packager.core.units import gib, percent, usd

WORDS = {
    TTFT: "first token",
    TPOT: "inter-token latency",
    LATENCY: "client latency",
    OUTPUT: "output tokens/s",
    REQUESTS: "requests/s",
    PRICE: "$/1M output",
    ERRORS: "failed requests",
}
LONGEST_REASON = 120  # characters; the report has the whole


def comparison_table(report: BenchReport) -> Table | None:
    """Return variants against the first one, by load; None without a comparison."""
    if not report.compared:
        return None
    names = dict(
        zip(
            (variant.name for variant in report.variants),
            short_names([variant.name for variant in report.variants]),
            strict=True,
        )
    )
    places = {variant.name: place for place, variant in enumerate(report.variants)}
    metrics = list(dict.fromkeys(one.metric for one in report.compared))
    rows = []
    groups = itertools.groupby(
        sorted(report.compared, key=lambda one: (places.get(one.variant, 0), *_level(one))),
        key=lambda one: (one.variant, *_level(one)),
    )
    for (name, _, _), group in groups:
        found = {one.metric: one for one in group}
        one = next(iter(found.values()))
        load = f"{one.rate:g}/s" if one.rate else f"{one.concurrency}"
        cells = (_compared_words(found.get(metric)) for metric in metrics)
        rows.append(Row((names.get(name, name), load, *cells), series=places.get(name, 0)))
    return Table(
        title=f"Against {names[report.variants[0].name]}",
        columns=columns_of(report, *number_columns(*map(metric_words, metrics))),
        rows=tuple(rows),
        medium="page",
    )


def predicted_table(report: BenchReport) -> Table | None:
    """Return predictions beside measurements; None where there is no prediction."""
    names = short_names([variant.name for variant in report.variants])
    rows = [
        Row((names[place], load_name(load), *cells), series=place)
        for place, _, load in loads_of(report)
        if load.predicted
        for cells in _predicted_cells(load.predicted, load)
    ]
    if not rows:
        return None
    numbers_ = number_columns("predicted", "measured", "off by", "band")
    return Table(
        title="Predicted and measured",
        columns=columns_of(report, Column("what"), *numbers_, Column("within it")),
        rows=tuple(rows),
    )


def predicted_notes(table: Table | None) -> tuple[str, ...]:
    """Count the predictions that are within their band."""
    rows = table.rows if table else ()
    inside = sum(row.cells[-1] == "yes" for row in rows)
    known = sum(row.cells[-1] != NOTHING for row in rows)
    return (f"{inside} of {known} predictions are within their band.",) if known else ()


def goodput_table(report: BenchReport) -> Table | None:
    """Return the share of requests within the limits; None where there are no limits."""
    if not limit_words(report.limits):
        return None
    names = short_names([variant.name for variant in report.variants])
    found = [(place, load) for place, _, load in loads_of(report) if load.good is not None]
    shares = numbers([100 * (load.good or 0) for _, load in found])
    rates = numbers([value(load, "goodput") for _, load in found])
    rows = tuple(
        Row(
            (
                *(names[place], load_name(load), share, rate),
                "yes" if is_within(report, load) else "no",
            ),
            series=place,
        )
        for (place, load), share, rate in zip(found, shares, rates, strict=True)
    )
    if not rows:
        return None
    figures = (*number_columns("good, %", "good requests/s"), Column("95 % are good"))
    return Table(
        title="Requests within the limits", columns=columns_of(report, *figures), rows=rows
    )


def fault_table(report: BenchReport) -> Table | None:
    """Return the ways in which requests failed; None where none did."""
    names = short_names([variant.name for variant in report.variants])
    rows = tuple(
        Row(
            (
                *(names[place], load_name(load), f"{error.count:,}", error.kind),
                fitted(
                    f"HTTP {error.status}: {error.reason}" if error.status else error.reason,
                    LONGEST_REASON,
                ),
            ),
            series=place,
        )
        for place, _, load in loads_of(report)
        for error in load.errors
    )
    if not rows:
        return None
    columns = (*number_columns("requests"), *word_columns("kind", "reason"))
    return Table(title="Requests that failed", columns=columns_of(report, *columns), rows=rows)


def quality_table(report: BenchReport) -> Table | None:
    """Return what quantizing changed; None where it was not measured."""
    if not any(variant.quality for variant in report.variants):
        return None
    names = short_names([variant.name for variant in report.variants])
    rows = []
    for place, variant in enumerate(report.variants):
        if variant.quality is None:
            cells = (*(NOTHING,) * 4, "original" if is_reference(variant) else "not measured")
        else:
            found = variant.quality.quality
            cells = (
                _with_error(found.perplexity_increase, found.perplexity_increase_ci95, 100, "+.2f"),
                _with_error(found.kld_mean, found.kld_mean_ci95, 1, ".3g"),
                _with_error(found.top1_agreement, found.top1_agreement_ci95, 100, ".1f"),
                _with_error(found.answer_flips, None, 100, ".1f"),
                "changed" if variant.quality.is_measurable else "no measurable change",
            )
        rows.append(Row((names[place], *cells), series=place))
    name, _, *figures = columns_of(
        report,
        *number_columns("perplexity, % more", "mean KLD, nats", "same first choice, %"),
        *number_columns("answers' first choices flipped, %"),
        Column("verdict"),
    )
    columns = (replace(name, field=""), *figures)  # filters are of the tables below
    return Table(title="Quality", columns=columns, rows=tuple(rows))


def boundary_sentences(report: BenchReport) -> Iterator[str]:
    """Yield what searches found."""
    names = short_names([variant.name for variant in report.variants])
    for name, variant in zip(names, report.variants, strict=True):
        if variant.boundary is not None:
            yield f"{name}: {boundary_words(variant.boundary)}"


def boundary_words(found: Boundary) -> str:
    """Return the result of a search as a sentence."""
    if found.what == "knee":
        if found.feasible is None:
            return "no knee was found: more requests at once still added speed, or got no answer."
        return f"the knee is at {_requests(found.feasible)} at once: more adds latency, not speed."
    if found.feasible is None:
        start = "no load that was tried is within the limits"
    else:
        start = (
            f"up to {_requests(found.feasible)} at once {_are(found.feasible)} within the limits"
        )
    if found.infeasible is not None:
        start += f"; {found.infeasible:,} {_are(found.infeasible)} not"
    if found.breach:
        start += f", by {metric_words(found.breach)}"
        if found.breach_value is not None:
            start += f" ({_breach_words(found.breach, found.breach_value)})"
    return f"{start}."


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _breach_words(tag: str, value: float) -> str:
    if tag == ERRORS:
        return f"{value:.3g} %"
    shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{STATISTICS.get(tag, '')} {shown} ms".lstrip()


def limit_words(limits: Limits) -> str:
    """Return the limits of a good request; empty if there are none."""
    parts = (
        ("the first token within", limits.ttft_ms),
        ("each further one within", limits.tpot_ms),
        ("the whole answer within", limits.latency_ms),
    )
    return ", ".join(f"{words} {limit:g} ms" for words, limit in parts if limit is not None)


def metric_words(tag: str) -> str:
    """Return a metric's name for people."""
    return WORDS.get(tag, tag.replace("_", " "))


def setup_cards(report: BenchReport) -> Cards:
    """Return what every variant is, as far as it is known."""
    names = short_names([variant.name for variant in report.variants])
    return Cards(
        tuple(
            Card(title=name, facts=tuple(_facts(variant)), series=place)
            for place, (name, variant) in enumerate(zip(names, report.variants, strict=True))
        )
    )


def _facts(variant: BenchVariant) -> Iterator[Pair]:
    setup = variant.setup
    yield Pair("Server", variant.name)
    split = f"TP {setup.tp_degree}" if setup.tp_degree else ""
    weights = setup.precision
    if setup.quantization:
        done = (
            "not quantized" if setup.quantization == "none" else f"quantized: {setup.quantization}"
        )
        weights = f"{weights}, {done}" if weights else done
    yield Pair("Model", setup.model)
    yield Pair("Engine", setup.engine)
    yield Pair("Instance", ", ".join(filter(None, (setup.instance, split))))
    yield Pair("Weights", weights)
    yield Pair("Draft", setup.draft or "")
    yield Pair("Quality", quality_words(variant))
    ready = f"{variant.start_s:,.1f} s to the first answer" if variant.start_s else ""
    yield Pair("Start", ready)
    yield Pair("Memory", _memory(variant))
    yield Pair("Image", setup.digest)
    yield Pair("Not measured", variant.failure, "error")


def _memory(variant: BenchVariant) -> str:
    used = [load.use for load in variant.loads if load.use]
    most = max((use.peak_memory_bytes or 0 for use in used), default=0)
    of_gpus = max((use.gpu_memory_bytes or 0 for use in used), default=0)
    parts = [f"{gib(most)} at most"] if most else []
    parts += [f"{gib(of_gpus)} of GPUs"] if of_gpus else []
    return ", ".join(parts)


def _predicted_cells(predicted: Predicted, load: BenchLoad) -> Iterator[tuple[str, ...]]:
    pairs = (
        ("first token, ms", predicted.ttft_ms, value(load, TTFT, "p50")),
        ("inter-token latency, ms", predicted.tpot_ms, value(load, TPOT, "p50")),
        ("output tokens/s", predicted.output_token_throughput, value(load, OUTPUT)),
    )
    for name, expected, measured in pairs:
        if expected is None:
            continue
        both = numbers([expected, measured])
        if not measured or not expected:
            yield (name, *both, NOTHING, NOTHING, NOTHING)
            continue
        off = expected / measured - 1
        band = f"±{percent(predicted.band)}" if predicted.band is not None else NOTHING
        within = (
            NOTHING if predicted.band is None else "yes" if abs(off) <= predicted.band else "no"
        )
        yield (name, *both, f"{100 * off:+.0f} %", band, within)


def _compared_words(found: Compared | None) -> str:
    if found is None:
        return NOTHING
    span = f" ({found.low:.2f}–{found.high:.2f})" if found.low and found.high else ""
    return f"{found.ratio:.2f}x{span}" + (" noise" if found.is_noise else "")


def _level(found: Compared) -> tuple[float, int]:
    return (found.rate or 0.0, found.concurrency or 0)


def _with_error(share: float | None, half: float | None, factor: float, form: str) -> str:
    if share is None:
        return NOTHING
    written = format(factor * share, form)
    return written if half is None else f"{written} ± {format(factor * half, form.lstrip('+'))}"


def _requests(number: int) -> str:
    return f"{number:,} {'request' if number == 1 else 'requests'}"


def losses(report: BenchReport) -> list[str]:
    """Return sentences about requests without an answer, by variant."""
    names = short_names([variant.name for variant in report.variants])
    found = []
    for name, variant in zip(names, report.variants, strict=True):
        sent = sum(load.requests for load in variant.loads)
        counts = (
            (sum(map(failed, variant.loads)), "failed"),
            (sum(load.empty for load in variant.loads), "came back empty"),
            (sum(load.tokenizer_failed for load in variant.loads), "could not be tokenized"),
            (sum(load.cancelled for load in variant.loads), "were still running at the end"),
        )
        parts = [f"{count:,} {words}" for count, words in counts if count]
        if parts:
            found.append(f"{name}: of {sent:,} requests {', '.join(parts)}.")
    return found


def price_sources(report: BenchReport) -> list[str]:
    """Return the prices of an hour that were used, each with its source."""
    found: dict[str, None] = {}
    for _, variant, load in loads_of(report):
        if (prices := load.prices) is None:
            continue
        at = variant.setup.instance or "a server"
        off = f", less {percent(prices.discount)}" if prices.discount else ""
        source = f" ({prices.source})" if prices.source else ""
        found[f"{at}: ${usd(prices.usd_hour)} an hour{off}{source}"] = None
    return list(found)


def note_sentences(report: BenchReport) -> list[str]:
    """Return what a reader must know, of the whole and of each load, each once."""
    names = short_names([variant.name for variant in report.variants])
    found = dict.fromkeys(f"{note[:1].upper()}{note[1:]}" for note in report.notes)
    for place, _, load in loads_of(report):
        at = f"{names[place]}, {load_words(load)}"
        found |= dict.fromkeys(f"{at}: {note}" for note in load.notes)
        if load.interrupted:
            found[f"{at}: ended early, {load.interrupted}"] = None
    return [f"{note.rstrip('.')}." for note in found]  # servers are named as they are
