"""What only the page of a benchmark has: choices, charts, set-ups and formulas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from packager.addons.bench.decision import (
    GOOD_SHARE,
    TITLES,
    Goal,
    Pick,
    is_mixed,
    pick,
    quality_words,
)
from packager.addons.bench.names import load_words, short_names
from packager.addons.bench.page_charts import (
    cost_chart,
    priced_quality,
    quality_chart,
    rounds_chart,
    speed_chart,
    spread_chart,
)
from packager.addons.bench.page_tables import (
    limit_words,
    note_sentences,
    quality_table,
    setup_cards,
)
from packager.addons.bench.tables import (
    LATENCY,
    OUTPUT_USER,
    TPOT,
    TTFT,
    loads_of,
    price_of,
    rate_of,
    speculation_table,
    table_section,
    value,
    way_of,
)
from packager.core.bench import BenchReport, BenchWorkload
from packager.core.reports.report import (
    Card,
    Cards,
    Command,
    Pair,
    Pairs,
    Part,
    Section,
    Tone,
    Words,
)
from packager.core.units import percent, usd
from packager.estimate.performance.pricing import LABELS

GOALS: tuple[Goal, ...] = ("cost", "throughput", "latency")
TONES: Mapping[str, Tone] = {
    "Best": "yes",
    "Within noise": "note",
    "Measured": "note",
    "Not measured": "note",
    "No answer": "error",
}
FOOTER = (
    "Figures are of this machine, these requests and this time: measure with your own before you "
    "rely on them. Prices are for the hours of servers; taxes, storage and traffic are not in "
    "them."
)
_QUANTIZED = (
    "Against the original model, with 95 % intervals; a divergence that is no larger than the "
    "original's own in another batch is no measurable change"
)
_MINUTE = re.compile(r"(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}):\d{2}(?:\.\d+)?(?:Z|\+00:00)")


def first_sections(report: BenchReport, chosen: Goal | None) -> Iterator[Section]:
    """Yield what a page begins with: the best of each goal, and the charts."""
    if cards := _choices(report, chosen):
        limits = limit_words(report.limits)
        of = f"of the loads within the limits: {limits}, for {percent(GOOD_SHARE)} of requests"
        words: list[Part] = [Words(of)] if limits else []
        yield _on_page("choices", "Best by goal", *words, Cards(cards))
    if speed := speed_chart(report):
        yield _on_page("speed", "Speed under load", speed)
    if cost := cost_chart(report):
        yield _on_page("cost", "Cost under load", cost)
    if spread := spread_chart(report):
        yield _on_page("spread", "How long answers took", spread)
    if rounds := rounds_chart(report):
        yield _on_page("rounds", "Round by round", rounds)
    quality = tuple(table_section("quality", quality_table(report), _QUANTIZED))
    chart = quality_chart(report)
    by = "price" if priced_quality(report) else "speed"
    for section in quality:
        drawn: tuple[Part, ...] = (chart,) if chart else ()
        parts = (*drawn, *section.parts)
        yield replace(section, title=f"Quality against {by}", parts=parts, medium="page")


def last_sections(report: BenchReport, sources: tuple[str, ...], command: str) -> Iterator[Section]:
    """Yield what a page ends with: what was measured on what, how, and where it comes from."""
    about: list[Part] = [Pairs(tuple(_setup(report))), setup_cards(report)]
    about += map(Words, note_sentences(report))
    yield _on_page("setup", "What was measured on what", *about, short="What was measured")
    formulas = Pairs(tuple(_formulas(report)))
    yield _on_page("formulas", "How figures are computed", formulas, short="Formulas")
    again: list[Part] = [Pairs((Pair("Files", ", ".join(sources)),))] if sources else []
    if report.command:
        again += [Words("to measure again:"), Command(report.command, "measures again")]
    if command:
        again += [Words("to make this page again:"), Command(command, "makes this page")]
    if again:
        title = "Where this page comes from"
        yield Section(key="again", title=title, parts=tuple(again), medium="page")


def _on_page(key: str, title: str, *parts: Part, short: str = "") -> Section:
    return Section(key=key, title=title, short=short or title, parts=parts, medium="page")


def when_words(measured: str) -> str:
    """Return a time in UTC for people: `2026-09-01 12:30 UTC`."""
    return _MINUTE.sub(r"\1 \2 UTC", measured)


def workload_words(workload: BenchWorkload) -> str:
    """Return what was sent, in a few words."""
    parts = [workload.name]
    if workload.input_tokens and workload.output_tokens:
        parts.append(f"{workload.input_tokens:,.0f} tokens in, {workload.output_tokens:,.0f} out")
    elif workload.input_tokens:
        parts.append(f"{workload.input_tokens:,.0f} tokens in")
    elif workload.output_tokens:
        parts.append(f"{workload.output_tokens:,.0f} tokens out")
    return ": ".join(filter(None, parts))


def title_words(report: BenchReport) -> str:
    models = {variant.setup.model for variant in report.variants if variant.setup.model}
    count = len(report.variants)
    ways = "1 way to serve it" if count == 1 else f"{count} ways to serve it"
    if len(models) == 1:
        return f"{models.pop()}: {ways}"
    if models:
        return f"{len(models)} models, {count} servers"
    return "1 server" if count == 1 else f"{count} servers"


def origin_words(report: BenchReport) -> tuple[str, ...]:
    """Return on what, when and by what was measured."""
    sentences = (
        report.machine,
        workload_words(report.workload),
        when_words(report.measured),
        f"packager {report.packager_version}",
    )
    return tuple(filter(None, sentences))


def tiles_of(found: Pick | None) -> Iterator[Pair]:
    """Yield the figures of a load."""
    if found is None:
        return
    load = found.load
    if price := price_of(load):
        yield Pair(f"per million tokens {way_of(load)}", f"${usd(price)}")
    if (rate := rate_of(load)) is not None:
        words = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:,.2f}/s"
        yield Pair(f"tokens, at {load_words(load)}", words)
    if (first := value(load, TTFT, "p50")) is not None:
        yield Pair("to the first token, half of the requests", _ms(first))
    if (each := value(load, TPOT, "p50")) is not None:
        yield Pair("for each further token", _ms(each))
    if load.good is not None:
        yield Pair("of requests within the limits", percent(load.good))


def _choices(report: BenchReport, chosen: Goal | None) -> tuple[Card, ...]:
    """Return the best of each goal, once where it is best of several; none of a single load."""
    if is_mixed(report) or sum(bool(load.answered) for _, _, load in loads_of(report)) < 2:
        return ()
    names = short_names([variant.name for variant in report.variants])
    found: dict[tuple[int, str], list[Pick]] = {}
    for goal in GOALS:
        if one := pick(report, goal):
            found.setdefault((one.place, load_words(one.load)), []).append(one)
    return tuple(
        Card(
            title=_joined([TITLES[one.goal] for one in picks]),
            is_first=any(one.goal == chosen for one in picks),
            series=place,
            what=f"{names[place]} at {words}",
            price=_headline(picks[0])[0],
            price_unit=_headline(picks[0])[1],
            facts=tuple(_facts(picks)),
        )
        for (place, words), picks in found.items()
    )


def _joined(titles: list[str]) -> str:
    """Join titles to one: `Cheapest per token, and most tokens a second`."""
    first, *others = titles
    return ", and ".join((first, *(title[:1].lower() + title[1:] for title in others)))


def _headline(found: Pick) -> tuple[str, str]:
    load = found.load
    if found.goal == "cost" and load.prices:
        return f"${usd(price_of(load) or 0)}", f"per million tokens {way_of(load)}"
    if found.goal == "throughput":
        return f"{rate_of(load) or 0:,.0f}", "tokens a second"
    if (each := value(load, TPOT, "p50")) is not None:
        return _ms(each), "for each token"
    return _ms(value(load, LATENCY, "p50") or 0), "for an answer"


def _facts(picks: list[Pick]) -> Iterator[Pair]:
    """Yield the figures of a load beside its headline."""
    found, load = picks[0], picks[0].load
    if found.goal != "cost" and (price := price_of(load)):
        yield Pair("Price", f"${usd(price)} per million tokens {way_of(load)}")
    rate, reader = rate_of(load), value(load, OUTPUT_USER, "p50")
    if rate is not None:
        one = f", {reader:,.0f} for one reader" if reader is not None else ""
        yield Pair("Tokens/s", f"{rate:,.0f}{one}")
    first, each = value(load, TTFT, "p50"), value(load, TPOT, "p50")
    if first is not None:
        yield Pair("First token", _ms(first))
    if each is not None and found.goal != "latency":
        yield Pair("Each token", _ms(each))
    if not found.within:
        yield Pair("Limits", "not kept: no load keeps them")
    quality = quality_words(found.variant)
    yield Pair("Quality", quality, "warning" if quality == "quantized, not measured" else "")


def _setup(report: BenchReport) -> Iterator[Pair]:
    """Yield what all variants have in common."""
    workload, by = report.workload, f"by packager {report.packager_version}"
    rows = (
        ("Machine", report.machine or "not known: the servers were elsewhere"),
        ("Requests", workload_words(workload)),
        ("Data", " ".join(filter(None, (workload.data, workload.data_digest)))),
        ("Seed", str(workload.seed)),
        ("Limits", limit_words(report.limits)),
        ("Rounds", str(report.rounds)),
        ("Measured", ", ".join(filter(None, (when_words(report.measured), by)))),
    )
    yield from (Pair(name, words) for name, words in rows)


def _formulas(report: BenchReport) -> Iterator[Pair]:
    yield Pair(
        "First token",
        "from sending a request to the first piece of the answer that holds content (TTFT)",
    )
    yield Pair(
        "Inter-token latency",
        "of each request: its time after the first token over its tokens after the first (TPOT)",
    )
    if speculation_table(report) is not None:
        yield Pair(
            "ITL",
            "from one piece of an answer to the next; with a draft a piece holds several tokens",
        )
        yield Pair(
            "Acceptance length", "tokens that the model accepts in each step that checks a draft"
        )
    yield Pair("Client latency", "from sending a request to the last byte of its answer")
    yield Pair("Tokens/s", "tokens of all answered requests over the time of the load")
    yield Pair(
        "Of a request",
        "output tokens/s are 1 over the inter-token latency; input tokens/s are its prompt over "
        "the time to its first token",
    )
    if any(load.prices for _, _, load in loads_of(report)):
        yield Pair(
            "$/1M",
            "the price of an hour over the tokens of an hour. Those of input and of output each "
            f"charge the whole server to one stream: never add them. F3: {LABELS['F3']}",
        )
        yield Pair("F1", f"{LABELS['F1']}: as if prompts took no time; seen in announcements")
        yield Pair(
            "F2", f"{LABELS['F2']}: what one client sees, waiting included; seen in announcements"
        )
        yield Pair(
            "3:1 blend",
            "three tokens in to one out, with the tokens in for free; a quarter of $/1M output",
        )
    if report.rounds >= 3:
        yield Pair(
            "Intervals",
            f"95 %, from the means of {report.rounds} rounds, by Student's t distribution",
        )


def _ms(time: float) -> str:
    return f"{time:,.0f} ms" if time >= 100 else f"{time:,.1f} ms"
