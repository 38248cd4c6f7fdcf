"""Charts of a benchmark's page: speed and cost under load, quality against price."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from string import ascii_uppercase

from packager.addons.bench.decision import pick
from packager.addons.bench.intervals import mean_interval
from packager.addons.bench.names import load_words, short_names
from packager.addons.bench.tables import (
    LATENCY,
    OUTPUT,
    OUTPUT_USER,
    TPOT,
    load_header,
    percentile,
    value,
)
from packager.core.bench import BenchLoad, BenchReport, BenchVariant, Round
from packager.core.reports.cells import cell_width
from packager.core.reports.report import Chart, Dot, Key, Series, Words
from packager.core.units import percent, usd

FEWEST_ROUNDS = 3  # that an interval is made of
_RANKS = (1, 5, 10, 25, 50, 75, 90, 95, 99)
_MOST_LABELS = 24  # of points, beyond which only the best have one
_MOST_NAMES = 6  # of series in a drawing; beyond them letters stand for them
_WIDEST_NAME = 18  # cells
_PRESSED = (
    "lower is better. An hour costs the same however many tokens it gives: a server that is "
    "pressed harder is cheaper per token, until it gives no more"
)


def keys_of(report: BenchReport) -> tuple[Key, ...]:
    """Return the key of every variant."""
    names = short_names([variant.name for variant in report.variants])
    fits = len(names) <= _MOST_NAMES and all(cell_width(name) <= _WIDEST_NAME for name in names)
    return tuple(
        Key(
            number=number,
            name=name,
            short=name if fits else _letters(number),
            is_letter=not fits,
        )
        for number, name in enumerate(names)
    )


def speed_chart(report: BenchReport) -> Chart | None:
    """Draw tokens/s of all users against those of one; None without streaming."""
    series = _series(report, _speed_dot)
    if not series:
        return None
    header = load_header(report)
    many = "requests at once" if header == "concurrency" else header
    notes = [
        f"up and to the right is better. Numbers beside points are {many}: more of them give more "
        "tokens a second in all, and fewer to each reader"
    ]
    if report.rounds >= FEWEST_ROUNDS:
        notes.append(f"bars are 95 % intervals over {report.rounds} rounds")
    if report.pareto:
        priced = any(load.prices for variant in report.variants for load in variant.loads)
        by = "speed and price" if priced else "latency and throughput"
        notes.append(f"ringed points are beaten by no other in {by}")
    return Chart(
        series=tuple(series),
        x_label="tokens per second for one reader",
        y_label="tokens per second, all together",
        name="Tokens per second of all readers together against those of one reader, by variant "
        "and load",
        table="the tables of latency and throughput",
        keys=keys_of(report),
        beside=tuple(map(Words, notes)),
    )


def cost_chart(report: BenchReport) -> Chart | None:
    """Draw the price of a million tokens against the load; None where no price is known."""
    loads = [load for variant in report.variants for load in variant.loads if load.prices]
    levels = sorted({_level(load) for load in loads})
    series = _series(report, _cost_dot)
    if not series or len(levels) < 2:
        return None
    is_rate = any(load.rate for load in loads)
    return Chart(
        series=tuple(series),
        x_label="requests a second" if is_rate else "requests at once",
        y_label="US dollars per million tokens out",
        name="US dollars per million tokens out against the load, by variant",
        table="the table of prices",
        x_steps=tuple(levels),
        keys=keys_of(report),
        beside=(Words(_PRESSED),),
    )


def spread_chart(report: BenchReport) -> Chart | None:
    """Draw which share of answers took how long, of each variant where it gives most tokens.

    None without figures, and of more lines than can be told apart.
    """
    series = []
    for key, load in _busiest(report):
        dots = tuple(
            Dot(
                x=found,
                y=float(rank),
                title=f"{key.name}, {load_words(load)}: {rank} % of answers within {found:,.0f} ms",
            )
            for rank in _RANKS
            if (found := percentile(load, LATENCY, rank))
        )
        if len(dots) > 2:
            series.append(Series(number=key.number, name=key.short, dots=dots))
    if not 0 < len(series) <= _MOST_NAMES:
        return None
    return Chart(
        series=tuple(series),
        x_label="milliseconds to the end of an answer",
        y_label="% of answers",
        name="Share of answers against the time to their end, by variant",
        table="the report's JSON",
        linear_y=True,
        height=340,
        keys=keys_of(report),
        beside=(
            Words(
                "to the left is better, and steep is even. Each variant is at the load with most "
                "tokens a second; ends that too few answers stand for are left out"
            ),
        ),
    )


def rounds_chart(report: BenchReport) -> Chart | None:
    """Draw tokens/s round by round; None of one round, and of too many lines."""
    series = []
    for key, load in _busiest(report):
        rates = [one.output_token_throughput for one in load.rounds]
        dots = tuple(
            Dot(x=at, y=rate, title=f"{key.name}, round {at:.0f}: {rate:,.0f} tokens/s")
            for at, rate in enumerate(rates, 1)
            if rate
        )
        if len(dots) > 1:
            series.append(Series(number=key.number, name=key.short, dots=dots))
    if not 0 < len(series) <= _MOST_NAMES:
        return None
    longest = max(len(one.dots) for one in series)
    return Chart(
        series=tuple(series),
        x_label="round, in the order of time",
        y_label="tokens per second, all together",
        name="Tokens per second against the round, by variant",
        table="the report's JSON",
        x_steps=tuple(float(at) for at in range(1, longest + 1)),
        linear_x=True,
        height=340,
        keys=keys_of(report),
        beside=(Words("level lines are steady; variants are measured in turns within a round"),),
    )


def _busiest(report: BenchReport) -> list[tuple[Key, BenchLoad]]:
    """Return the load of each variant that has the most tokens a second."""
    found = [
        (key, pick(report, "throughput", only=place)) for place, key in enumerate(keys_of(report))
    ]
    return [(key, one.load) for key, one in found if one]


def quality_chart(report: BenchReport) -> Chart | None:
    """Draw agreement with the unquantized model against price, or against speed without one."""
    priced, keys = priced_quality(report), keys_of(report)
    series = [
        one
        for place, variant in _judged(report)
        if (one := _quality_series(report, keys[place], place, variant, priced=priced))
    ]
    if len(series) < 2:
        return None
    by, side = ("price", "left") if priced else ("speed", "right")
    return Chart(
        series=tuple(series),
        x_label="US dollars per million tokens out" if priced else "tokens per second, all",
        y_label="same first choice as the original, %",
        name=f"Share of tokens with the same first choice as the original model, against {by}, "
        "by variant",
        table="the tables of quality and of " + ("prices" if priced else "latency"),
        linear_y=True,
        height=340,
        keys=keys,
        beside=(
            Words(
                f"up and to the {side} is better. Each variant is at its best load; one that is "
                "not quantized is the original itself"
            ),
        ),
    )


def priced_quality(report: BenchReport) -> bool:
    """Whether the quality is drawn against prices."""
    return all(pick(report, "cost", only=place) for place, _ in _judged(report))


def is_reference(variant: BenchVariant) -> bool:
    """Whether a variant is what quantized ones are compared with: it is not quantized."""
    return variant.quality is None and variant.setup.quantization == "none"


def _judged(report: BenchReport) -> list[tuple[int, BenchVariant]]:
    """Return the variants with a known quality, the unquantized ones included."""
    return [
        (place, variant)
        for place, variant in enumerate(report.variants)
        if variant.loads and (variant.quality is not None or is_reference(variant))
    ]


def _quality_series(
    report: BenchReport, key: Key, place: int, variant: BenchVariant, *, priced: bool
) -> Series | None:
    found = pick(report, "cost" if priced else "throughput", only=place)
    figures = variant.quality.quality if variant.quality else None
    agreed = figures.top1_agreement if figures else 1.0
    if found is None or agreed is None:
        return None
    half = (figures.top1_agreement_ci95 if figures else None) or 0.0
    prices = found.load.prices
    x = (prices.output if prices else None) if priced else value(found.load, OUTPUT)
    if not x:
        return None
    at = f"${usd(x)} per million tokens out" if priced else f"{x:,.0f} tokens/s"
    quality = f"{percent(agreed, 1)} same first choice" if figures else "not quantized"
    dot = Dot(
        x=x,
        y=100 * agreed,
        y_range=(100 * (agreed - half), min(100.0, 100 * (agreed + half))) if half else None,
        title=f"{key.name}: {quality}, {at}",
    )
    return Series(number=key.number, name=key.short, dots=(dot,), joined=False)


def _series(
    report: BenchReport, dot_of: Callable[[BenchReport, BenchVariant, BenchLoad, Key], Dot | None]
) -> list[Series]:
    """Return a series for each variant that has points, with labels where there is room."""
    found = []
    for key, variant in zip(keys_of(report), report.variants, strict=True):
        dots = [dot for load in variant.loads if (dot := dot_of(report, variant, load, key))]
        if dots:
            found.append((key, dots))
    is_crowded = sum(len(dots) for _, dots in found) > _MOST_LABELS
    return [
        Series(
            number=key.number,
            name=key.short,
            dots=tuple(
                replace(dot, label="") if is_crowded and not dot.ringed else dot for dot in dots
            ),
        )
        for key, dots in found
    ]


def _speed_dot(report: BenchReport, variant: BenchVariant, load: BenchLoad, key: Key) -> Dot | None:
    rate, each = value(load, OUTPUT), _reader_rate(load)
    if not rate or not each:
        return None
    priced = load.prices.output if load.prices else None
    cost = f", ${usd(priced)} per million tokens out" if priced else ""
    return Dot(
        x=each,
        y=rate,
        label=f"{_level(load):g}",
        title=f"{key.name}, {load_words(load)}: {rate:,.0f} tokens/s, {each:,.1f} for one reader"
        f"{cost}",
        x_range=_interval(1e3 / one for one in _known(load.rounds, "tpot_p50_ms")),
        y_range=_interval(_known(load.rounds, "output_token_throughput")),
        ringed=(variant.name, load.concurrency) in report.pareto,
    )


def _cost_dot(
    report: BenchReport,  # noqa: ARG001
    variant: BenchVariant,  # noqa: ARG001
    load: BenchLoad,
    key: Key,
) -> Dot | None:
    prices = load.prices
    if prices is None or not prices.output:
        return None
    hour = prices.usd_hour * (1 - prices.discount)
    rates = _known(load.rounds, "output_token_throughput")
    return Dot(
        x=_level(load),
        y=prices.output,
        title=f"{key.name}, {load_words(load)}: ${usd(prices.output)} per million tokens out",
        y_range=_interval(hour / (rate * 3600 / 1e6) for rate in rates),
    )


def _reader_rate(load: BenchLoad) -> float | None:
    """Return the tokens a second that one reader sees, at the median."""
    found = value(load, OUTPUT_USER, "p50")
    time = value(load, TPOT, "p50")
    return found if found else 1e3 / time if time else None


def _known(rounds: Sequence[Round], name: str) -> list[float]:
    return [found for one in rounds if (found := getattr(one, name))]


def _interval(values: Iterable[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean over rounds; None of too few."""
    known = list(values)
    if len(known) < FEWEST_ROUNDS:
        return None
    found = mean_interval(known)
    return (found.low if found.low > 0 else min(known), found.high)


def _level(load: BenchLoad) -> float:
    return load.rate or load.concurrency or 1


def _letters(number: int) -> str:
    """Return A to Z, then A2, B2 and so on."""
    turn, letter = divmod(number, len(ascii_uppercase))
    return ascii_uppercase[letter] + (str(turn + 1) if turn else "")
