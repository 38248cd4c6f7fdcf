"""Tables of a benchmark as values: text prints them, pages draw them.

The first three have the rows of SageMaker's evaluation of an optimized model: latency, throughput
and price.  The fourth compares speculation as announcements of trained heads do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from packager.addons.bench.names import load_name, same_load, short_names
from packager.core.bench import BenchLoad, BenchReport, BenchVariant
from packager.core.units import usd
from packager.core.values import dataclass

NOTHING = "–"

TTFT = "time_to_first_token"
TPOT = "inter_token_latency"  # AIPerf's name of the time per output token
CHUNKS = "inter_chunk_latency"
LATENCY = "request_latency"
OUTPUT = "output_token_throughput"
OUTPUT_USER = "output_token_throughput_per_user"

_Value = Callable[[BenchLoad], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row: its first cell names the variant, its second the load."""

    variant: int  # its place in the report
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """Cells as text; all columns after the first are numbers, unless `words` has them."""

    key: str  # for links to it
    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    words: frozenset[int] = frozenset()  # columns of text


def value(load: BenchLoad, tag: str, statistic: str = "avg") -> float | None:
    """Return a statistic of a metric; None where it was not measured."""
    metric = load.metrics.get(tag)
    found: float | None = getattr(metric, statistic) if metric else None
    return found


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


def latency_table(report: BenchReport) -> ReportTable:
    """Return the rows of the section Latency."""
    columns: tuple[tuple[str, _Value], ...] = (
        ("first token p50, ms", lambda load: value(load, TTFT, "p50")),
        ("first token p99, ms", lambda load: value(load, TTFT, "p99")),
        ("inter-token p50, ms", lambda load: value(load, TPOT, "p50")),
        ("inter-token p99, ms", lambda load: value(load, TPOT, "p99")),
        ("client latency p50, ms", lambda load: value(load, LATENCY, "p50")),
        ("client latency p99, ms", lambda load: value(load, LATENCY, "p99")),
        ("input tokens/s", _input_rate),
        ("output tokens/s", lambda load: value(load, OUTPUT)),
        ("invocations", lambda load: load.requests),
        ("errors", failed),
        ("tokenizer failed", lambda load: load.tokenizer_failed),
        ("empty responses", lambda load: load.empty),
    )
    return _measured(report, "latency", "Latency", columns, counts=4)


def throughput_table(report: BenchReport) -> ReportTable:
    """Return the rows of the section Throughput."""
    columns: tuple[tuple[str, _Value], ...] = (
        ("input tokens/s of a request", lambda load: value(load, "prefill_throughput_per_user")),
        ("output tokens/s of a request", lambda load: value(load, OUTPUT_USER)),
        ("input tokens of a request", lambda load: value(load, "input_sequence_length")),
        ("output tokens of a request", lambda load: value(load, "output_sequence_length")),
        ("requests/s", lambda load: value(load, "request_throughput")),
    )
    return _measured(report, "throughput", "Throughput", columns)


def price_table(report: BenchReport) -> ReportTable | None:
    """Return the rows of the section Price; None where no price is known."""
    rows = []
    names = short_names([variant.name for variant in report.variants])
    for place, _, load in loads_of(report):
        if (prices := load.prices) is None:
            continue
        amounts = (prices.input, prices.output, prices.total, prices.f1, prices.f2, prices.blended)
        cells = (names[place], load_name(load), usd(prices.usd_hour), *map(_dollars, amounts))
        rows.append(TableRow(variant=place, cells=cells))
    if not rows:
        return None
    columns = ("$/1M input", "$/1M output", "$/1M all", "F1, output", "F2, output", "3:1 blend")
    return ReportTable(
        key="price",
        title="Price",
        columns=("variant", load_header(report), "$ an hour", *columns),
        rows=tuple(rows),
    )


def speculation_table(report: BenchReport) -> ReportTable | None:
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
    found = _measured(report, "speculation", "With and without a draft", columns)
    plain = next((one for one in report.variants if not _speculates(one)), None)
    rows = []
    for row, (_, variant, load) in zip(found.rows, loads_of(report), strict=True):
        draft = variant.setup.draft or ("unknown" if _speculates(variant) else "none")
        cells = (row.cells[0], draft, *row.cells[1:], _times(load, plain, variant))
        rows.append(TableRow(variant=row.variant, cells=cells))
    return ReportTable(
        key=found.key,
        title=found.title,
        columns=("variant", "draft", *found.columns[1:], "tokens/s, times"),
        rows=tuple(rows),
        words=frozenset((1,)),
    )


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
    told = value(load, "input_token_throughput")
    mean = value(load, "input_sequence_length")
    if told is not None or mean is None or not load.seconds:
        return told
    return mean * load.answered / load.seconds


def _measured(
    report: BenchReport,
    key: str,
    title: str,
    columns: Sequence[tuple[str, _Value]],
    *,
    counts: int = 0,
) -> ReportTable:
    """Return a table of all loads; the last `counts` columns are whole numbers."""
    names = short_names([variant.name for variant in report.variants])
    found = list(loads_of(report))
    written = [
        numbers([of(load) for _, _, load in found], whole=at >= len(columns) - counts)
        for at, (_, of) in enumerate(columns)
    ]
    rows = tuple(
        TableRow(
            variant=place, cells=(names[place], load_name(load), *(row[at] for row in written))
        )
        for at, (place, _, load) in enumerate(found)
    )
    header = ("variant", load_header(report), *(name for name, _ in columns))
    return ReportTable(key=key, title=title, columns=header, rows=rows)


def numbers(values: Iterable[float | None], *, whole: bool = False) -> list[str]:
    """Write a column's numbers with the same decimals: three significant digits of the smallest."""
    known = list(values)
    least = min((abs(one) for one in known if one), default=0.0)
    digits = 0 if whole or least >= 100 else 1 if least >= 10 else 2 if least >= 0.1 else 3
    return [NOTHING if one is None else f"{one:,.{digits}f}" for one in known]


def _dollars(amount: float | None) -> str:
    return NOTHING if amount is None else usd(amount)
