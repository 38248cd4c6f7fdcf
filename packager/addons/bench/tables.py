"""Tables of a benchmark, without what nobody measured.

The first three have the rows of SageMaker's evaluation of an optimized model: latency, throughput
and price.  The fourth compares speculation as announcements of trained heads do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from packager.addons.bench.names import load_name, same_load, short_names
from packager.core.bench import BenchLoad, BenchReport, BenchVariant
from packager.core.reports.report import (
    Column,
    Lines,
    Medium,
    Row,
    Section,
    Table,
    Words,
    number_columns,
)
from packager.core.units import usd

NOTHING = "–"

TTFT = "time_to_first_token"
TPOT = "inter_token_latency"  # AIPerf's name of the time per output token
CHUNKS = "inter_chunk_latency"
LATENCY = "request_latency"
OUTPUT = "output_token_throughput"
TEXTS = "text_throughput"
SAMPLES_OF_P99 = 100
OUTPUT_USER = "output_token_throughput_per_user"

_Value = Callable[[BenchLoad], float | None]


def value(load: BenchLoad, tag: str, statistic: str = "avg") -> float | None:
    """Return a statistic of a metric; None where it was not measured."""
    metric = load.metrics.get(tag)
    found: float | None = getattr(metric, statistic) if metric else None
    return found


def way_of(load: BenchLoad) -> Literal["in", "out"]:
    """Return which tokens a load is paid for: those of texts, where it gave vectors or scores."""
    return "in" if value(load, TEXTS) is not None else "out"


def rate_of(load: BenchLoad) -> float | None:
    """Return the tokens a second that a load is paid for."""
    return value(load, OUTPUT if way_of(load) == "out" else "input_token_throughput")


def price_of(load: BenchLoad) -> float | None:
    """Return the price of a million of the tokens that a load is paid for."""
    prices = load.prices
    return None if prices is None else prices.output if way_of(load) == "out" else prices.input


def percentile(load: BenchLoad, tag: str, rank: int) -> float | None:
    """Return a percentile; None where too few were measured for one to be above, or below, it."""
    metric = load.metrics.get(tag)
    count = metric.count if metric else None
    if count is not None and count * min(rank, 100 - rank) < 100:
        return None
    return value(load, tag, f"p{rank}")


def failed(load: BenchLoad) -> int:
    """Count the requests that were not answered to their end."""
    return load.requests - load.answered


def loads_of(report: BenchReport) -> Iterator[tuple[int, BenchVariant, BenchLoad]]:
    """Yield every load that was measured, with its variant and the variant's place."""
    for place, variant in enumerate(report.variants):
        for load in variant.loads:
            yield place, variant, load


def load_header(report: BenchReport) -> str:
    """Return what a column of loads is called."""
    rates = {bool(load.rate) for _, _, load in loads_of(report)}
    return {frozenset((True,)): "rate", frozenset((True, False)): "load"}.get(
        frozenset(rates), "concurrency"
    )


def columns_of(report: BenchReport, *others: Column) -> tuple[Column, ...]:
    """Return the columns of variant and load, which a page can filter by, then others.

    Text needs no names where there is one variant.
    """
    alone: Medium = "page" if len(report.variants) == 1 else ""
    return (
        Column("variant", medium=alone, field="variant"),
        Column(load_header(report), field="load"),
        *others,
    )


def table_section(
    key: str,
    table: Table | None,
    caption: str,
    *,
    title: str = "",
    short: str = "",
    before: Sequence[str] = (),
    notes: Sequence[str] = (),
    about: Sequence[str] = (),
) -> Iterator[Section]:
    """Yield a table with its notes, without its empty columns; nothing where it has no figures.

    `before` and `about` are sentences of a page.
    """
    if table is None or not table.rows:
        return
    places = [
        at for at in range(len(table.columns)) if {row.cells[at] for row in table.rows} != {NOTHING}
    ]
    if len(places) < 2 or [table.columns[at].field for at in places] == ["variant", "load"]:
        return
    found = replace(
        table,
        columns=tuple(table.columns[at] for at in places),
        rows=tuple(
            Row(tuple(row.cells[at] for at in places), series=row.series) for row in table.rows
        ),
        title="",
        caption=caption,
        is_right=True,
        indent=2,
        is_sorted=True,
    )
    yield Section(
        key=key,
        title=title or table.title,
        heading=table.title,
        short=short or title or table.title,
        parts=(
            *(Words(words, "page", is_soft=False) for words in before),
            found,
            *(Lines((f"  {words}",)) for words in notes),
            *(Words(words, "page") for words in (*notes, *about)),
        ),
    )


def latency_table(report: BenchReport) -> Table:
    """Return the rows of the section Latency."""
    columns: tuple[tuple[str, _Value], ...] = (
        ("first token p50, ms", lambda load: value(load, TTFT, "p50")),
        ("first token p99, ms", lambda load: percentile(load, TTFT, 99)),
        ("inter-token p50, ms", lambda load: value(load, TPOT, "p50")),
        ("inter-token p99, ms", lambda load: percentile(load, TPOT, 99)),
        ("client latency p50, ms", lambda load: value(load, LATENCY, "p50")),
        ("client latency p99, ms", lambda load: percentile(load, LATENCY, 99)),
        ("input tokens/s", _input_rate),
        ("output tokens/s", lambda load: value(load, OUTPUT)),
        ("invocations", lambda load: load.requests),
        ("errors", failed),
        ("tokenizer failed", lambda load: load.tokenizer_failed),
        ("empty responses", lambda load: load.empty),
    )
    return _measured(report, "Latency", columns, counts=4)


def throughput_table(report: BenchReport) -> Table:
    """Return the rows of the section Throughput."""
    columns: tuple[tuple[str, _Value], ...] = (
        ("input tokens/s of a request", lambda load: value(load, "prefill_throughput_per_user")),
        ("output tokens/s of a request", lambda load: value(load, OUTPUT_USER)),
        ("input tokens of a request", lambda load: value(load, "input_sequence_length")),
        ("output tokens of a request", lambda load: value(load, "output_sequence_length")),
        ("texts of a request", lambda load: value(load, "text_count")),
        ("texts/s", lambda load: value(load, TEXTS)),
        ("requests/s", lambda load: value(load, "request_throughput")),
    )
    return _measured(report, "Throughput", columns)


def adapter_table(report: BenchReport) -> Table | None:
    """Return the figures of each adapter; None where no request was for one."""
    names = short_names([variant.name for variant in report.variants])
    found = [(place, load, one) for place, _, load in loads_of(report) for one in load.adapters]
    figures = (
        *((TTFT, "p50"), (TTFT, "p99"), (TPOT, "p50"), (LATENCY, "p50"), (LATENCY, "p99")),
        (OUTPUT, "avg"),
    )
    written = [
        numbers([getattr(one.metrics.get(tag), kind, None) for _, _, one in found])
        for tag, kind in figures
    ]
    rows = tuple(
        Row(
            (names[place], load_name(load), one.name, *(column[at] for column in written),
             f"{one.requests:,}", f"{one.requests - one.answered:,}"),
            series=place,
        )
        for at, (place, load, one) in enumerate(found)
    )  # fmt: skip
    if not rows:
        return None
    heads = number_columns(
        "first token p50, ms", "first token p99, ms", "inter-token p50, ms",
        "client latency p50, ms", "client latency p99, ms", "output tokens/s", "invocations",
        "errors",
    )  # fmt: skip
    columns = columns_of(report, Column("adapter"), *heads)
    return Table(title="Adapters", columns=columns, rows=rows)


def price_table(report: BenchReport) -> Table | None:
    """Return the rows of the section Price; None where no price is known."""
    rows = []
    names = short_names([variant.name for variant in report.variants])
    for place, _, load in loads_of(report):
        if (prices := load.prices) is None:
            continue
        amounts = (prices.input, prices.output, prices.total, prices.f1, prices.f2, prices.blended)
        cells = (names[place], load_name(load), usd(prices.usd_hour), *map(_dollars, amounts))
        rows.append(Row(cells, series=place))
    if not rows:
        return None
    columns = ("$/1M input", "$/1M output", "$/1M all", "F1, output", "F2, output", "3:1 blend")
    return Table(
        title="Price",
        columns=columns_of(report, *number_columns("$ an hour", *columns)),
        rows=tuple(rows),
    )


def speculation_table(report: BenchReport) -> Table | None:
    """Return variants by their draft; None where none has one."""
    if not any(_speculates(variant) for variant in report.variants):
        return None
    columns: tuple[tuple[str, _Value], ...] = (
        ("TTFT, ms", lambda load: value(load, TTFT, "p50")),
        ("TPOT, ms", lambda load: value(load, TPOT, "p50")),
        ("ITL, ms", lambda load: value(load, CHUNKS, "p50")),
        ("requests/s", lambda load: value(load, "request_throughput")),
        ("output tokens/s", lambda load: value(load, OUTPUT)),
        ("tokens/s of a request", lambda load: value(load, OUTPUT_USER, "p50")),
        ("acceptance length", lambda load: load.acceptance.length if load.acceptance else None),
    )
    found = _measured(report, "With and without a draft", columns)
    plain = next((one for one in report.variants if not _speculates(one)), None)
    rows = []
    for row, (_, variant, load) in zip(found.rows, loads_of(report), strict=True):
        draft = variant.setup.draft or ("unknown" if _speculates(variant) else "none")
        cells = (row.cells[0], draft, *row.cells[1:], _times(load, plain, variant))
        rows.append(Row(cells, series=row.series))
    name, *others = found.columns
    columns_ = (name, Column("draft"), *others, *number_columns("tokens/s, times"))
    return replace(found, columns=columns_, rows=tuple(rows))


def _speculates(variant: BenchVariant) -> bool:
    has = variant.setup.draft not in (None, "none")
    return has or any(load.acceptance and load.acceptance.length for load in variant.loads)


def _times(load: BenchLoad, plain: BenchVariant | None, variant: BenchVariant) -> str:
    """Return how many times the tokens a second of the same load without a draft."""
    if plain is None or plain is variant:
        return NOTHING
    base = next((one for one in plain.loads if same_load(one, load)), None)
    before, now = (value(base, OUTPUT) if base else None), value(load, OUTPUT)
    return f"{now / before:.2f}x" if before and now else NOTHING


def _input_rate(load: BenchLoad) -> float | None:
    """Return the input tokens of answered requests over the time of the load."""
    rate = value(load, "input_token_throughput")
    mean = value(load, "input_sequence_length")
    if rate is not None or mean is None or not load.seconds:
        return rate
    return mean * load.answered / load.seconds


def _measured(
    report: BenchReport,
    title: str,
    columns: Sequence[tuple[str, _Value]],
    *,
    counts: int = 0,
) -> Table:
    """Return a table of all loads; the last `counts` columns are whole numbers."""
    names = short_names([variant.name for variant in report.variants])
    found = list(loads_of(report))
    written = [
        numbers([of(load) for _, _, load in found], whole=at >= len(columns) - counts)
        for at, (_, of) in enumerate(columns)
    ]
    rows = tuple(
        Row((names[place], load_name(load), *(row[at] for row in written)), series=place)
        for at, (place, _, load) in enumerate(found)
    )
    header = columns_of(report, *number_columns(*(name for name, _ in columns)))
    return Table(title=title, columns=header, rows=rows)


def numbers(values: Iterable[float | None], *, whole: bool = False) -> list[str]:
    """Write a column's numbers with the same decimals: three significant digits of the smallest."""
    known = list(values)
    least = min((abs(one) for one in known if one), default=0.0)
    digits = 0 if whole or least >= 100 else 1 if least >= 10 else 2 if least >= 0.1 else 3
    return [NOTHING if one is None else f"{one:,.{digits}f}" for one in known]


def _dollars(amount: float | None) -> str:
    return NOTHING if amount is None else usd(amount)
