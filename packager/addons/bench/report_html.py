"""The page of a benchmark: which variant to take, then every figure that says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from packager.addons.bench.decision import (
    GOOD_SHARE,
    TITLES,
    Goal,
    Pick,
    decide,
    is_mixed,
    pick,
    quality_words,
)
from packager.addons.bench.names import load_words, short_names
from packager.addons.bench.page_charts import (
    cost_chart,
    keys_of,
    priced_quality,
    quality_chart,
    speed_chart,
)
from packager.addons.bench.page_tables import (
    boundary_sentences,
    comparison_table,
    fault_table,
    goodput_table,
    limit_words,
    losses,
    note_sentences,
    predicted_table,
    price_sources,
    quality_table,
    setups,
)
from packager.addons.bench.start_table import start_table
from packager.addons.bench.tables import (
    LATENCY,
    OUTPUT,
    OUTPUT_USER,
    TPOT,
    TTFT,
    latency_table,
    loads_of,
    price_table,
    speculation_table,
    throughput_table,
    value,
)
from packager.core.bench import BenchReport, BenchWorkload
from packager.core.reports.page import render_page
from packager.core.units import percent, usd
from packager.estimate.performance.pricing import LABELS

GOALS: tuple[Goal, ...] = ("cost", "throughput", "latency")
_TONES = {
    "Best": "yes",
    "Within noise": "note",
    "Measured": "note",
    "Not measured": "note",
    "No answer": "error",
}
_MINUTE = re.compile(r"(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}):\d{2}(?:\.\d+)?(?:Z|\+00:00)")


def bench_html(
    report: BenchReport,
    *,
    goal: Goal | None = None,
    sources: tuple[str, ...] = (),
    command: str = "",
) -> str:
    """Return the page of a benchmark, or of several that were merged.

    `sources` are the files that it was made of, and `command` makes the page again.
    """
    decision = decide(report, goal)
    keys = keys_of(report)
    page = {
        "trace": None,
        "packager": report.packager_version,
        "title": _title(report),
        "origin": [words for words in _origin(report) if words],
        "decision": decision,
        "tone": _TONES[decision.verdict],
        "tile_values": list(_tiles(decision.pick)),
        "choices": _choices(report, decision.pick.goal if decision.pick else None),
        "keys": keys,
        "letters": bool(keys) and keys[0].is_letter,
        "speed": speed_chart(report),
        "pareto": bool(report.pareto),
        "cost": cost_chart(report),
        "quality": quality_table(report),
        "quality_chart": quality_chart(report),
        "quality_by": "price" if priced_quality(report) else "speed",
        "measured": [
            table for table in (latency_table(report), throughput_table(report)) if table.rows
        ],
        "price": price_table(report),
        "speculation": speculation_table(report),
        "differences": comparison_table(report),
        "rounds": report.rounds,
        "limits": limit_words(report.limits),
        "good_share": percent(GOOD_SHARE),
        "goodput": goodput_table(report),
        "boundaries": list(boundary_sentences(report)),
        "predicted": predicted_table(report),
        "starts": start_table(report),
        "faults": fault_table(report),
        "losses": losses(report),
        "notes": note_sentences(report),
        "setup": list(_setup(report)),
        "variants": setups(report),
        "formulas": list(_formulas(report)),
        "prices": price_sources(report),
        "sources": sources,
        "commands": _commands(report, command),
    }
    page["contents"] = _contents(page)
    return render_page("bench.html.j2", page, own="bench")


def when_words(measured: str) -> str:
    """Return a time in UTC for people: `2026-09-01 12:30 UTC`."""
    return _MINUTE.sub(r"\1 \2 UTC", measured)


def workload_words(workload: BenchWorkload) -> str:
    """Return what was sent, in a few words."""
    parts = [workload.name]
    if workload.input_tokens and workload.output_tokens:
        parts.append(f"{workload.input_tokens:,.0f} tokens in, {workload.output_tokens:,.0f} out")
    elif workload.output_tokens:
        parts.append(f"{workload.output_tokens:,.0f} tokens out")
    return ": ".join(filter(None, parts))


def _title(report: BenchReport) -> str:
    models = {variant.setup.model for variant in report.variants if variant.setup.model}
    count = len(report.variants)
    ways = "1 way to serve it" if count == 1 else f"{count} ways to serve it"
    if len(models) == 1:
        return f"{models.pop()}: {ways}"
    if models:
        return f"{len(models)} models, {count} servers"
    return "1 server" if count == 1 else f"{count} servers"


def _origin(report: BenchReport) -> tuple[str, ...]:
    return (
        report.machine,
        workload_words(report.workload),
        when_words(report.measured),
        f"packager {report.packager_version}",
    )


def _tiles(found: Pick | None) -> Iterator[dict[str, str]]:
    if found is None:
        return
    load = found.load
    if load.prices and load.prices.output:
        yield {"value": f"${usd(load.prices.output)}", "name": "per million tokens out"}
    if (rate := value(load, OUTPUT)) is not None:
        words = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:,.2f}/s"
        yield {"value": words, "name": f"tokens, at {load_words(load)}"}
    if (first := value(load, TTFT, "p50")) is not None:
        yield {"value": _ms(first), "name": "to the first token, half of the requests"}
    if (each := value(load, TPOT, "p50")) is not None:
        yield {"value": _ms(each), "name": "for each further token"}
    if load.good is not None:
        yield {"value": percent(load.good), "name": "of requests within the limits"}


def _choices(report: BenchReport, chosen: Goal | None) -> list[dict[str, Any]]:
    """Return the best of each goal, once where it is best of several; none of a single load."""
    if is_mixed(report) or sum(bool(load.answered) for _, _, load in loads_of(report)) < 2:
        return []
    names = short_names([variant.name for variant in report.variants])
    found: dict[tuple[int, str], list[Pick]] = {}
    for goal in GOALS:
        if one := pick(report, goal):
            found.setdefault((one.place, load_words(one.load)), []).append(one)
    return [
        {
            "title": _joined([TITLES[one.goal] for one in picks]),
            "first": any(one.goal == chosen for one in picks),
            "place": place,
            "what": f"{names[place]} at {words}",
            **dict(zip(("price", "price_unit"), _headline(picks[0]), strict=True)),
            "facts": list(_facts(picks)),
            "quality": quality_words(picks[0].variant),
            "is_quality_known": quality_words(picks[0].variant) != "quantized, not measured",
        }
        for (place, words), picks in found.items()
    ]


def _joined(titles: list[str]) -> str:
    """Join titles to one: `Cheapest per token, and most tokens a second`."""
    first, *others = titles
    return ", and ".join((first, *(title[:1].lower() + title[1:] for title in others)))


def _headline(found: Pick) -> tuple[str, str]:
    load = found.load
    if found.goal == "cost" and load.prices:
        return f"${usd(load.prices.output or 0)}", "per million tokens out"
    if found.goal == "throughput":
        return f"{value(load, OUTPUT):,.0f}", "tokens a second"
    if (each := value(load, TPOT, "p50")) is not None:
        return _ms(each), "for each token"
    return _ms(value(load, LATENCY, "p50") or 0), "for an answer"


def _facts(picks: list[Pick]) -> Iterator[tuple[str, str]]:
    """Yield the figures of a load beside its headline."""
    found, load = picks[0], picks[0].load
    if found.goal != "cost" and load.prices and load.prices.output:
        yield "Price", f"${usd(load.prices.output)} per million tokens out"
    rate, reader = value(load, OUTPUT), value(load, OUTPUT_USER, "p50")
    if rate is not None:
        one = f", {reader:,.0f} for one reader" if reader is not None else ""
        yield "Tokens/s", f"{rate:,.0f}{one}"
    first, each = value(load, TTFT, "p50"), value(load, TPOT, "p50")
    if first is not None:
        yield "First token", _ms(first)
    if each is not None and found.goal != "latency":
        yield "Each token", _ms(each)
    if not found.within:
        yield "Limits", "not kept: no load keeps them"


def _setup(report: BenchReport) -> Iterator[tuple[str, str]]:
    """Yield what all variants have in common."""
    workload = report.workload
    rows = (
        ("Machine", report.machine or "not known: the servers were elsewhere"),
        ("Requests", workload_words(workload)),
        ("Data", " ".join(filter(None, (workload.data, workload.data_digest)))),
        ("Seed", str(workload.seed)),
        ("Limits", limit_words(report.limits)),
        ("Rounds", str(report.rounds)),
        ("Measured", f"{when_words(report.measured)}, by packager {report.packager_version}"),
    )
    yield from ((name, words) for name, words in rows if words)


def _formulas(report: BenchReport) -> Iterator[tuple[str, str]]:
    yield (
        "First token",
        "from sending a request to the first piece of the answer that holds content (TTFT)",
    )
    yield (
        "Inter-token latency",
        "of each request: its time after the first token over its tokens after the first (TPOT)",
    )
    if speculation_table(report) is not None:
        yield (
            "ITL",
            "from one piece of an answer to the next; with a draft a piece holds several tokens",
        )
        yield "Acceptance length", "tokens that the model accepts in each step that checks a draft"
    yield "Client latency", "from sending a request to the last byte of its answer"
    yield "Tokens/s", "tokens of all answered requests over the time of the load"
    yield (
        "Of a request",
        "output tokens/s are 1 over the inter-token latency; input tokens/s are its prompt over "
        "the time to its first token",
    )
    if any(load.prices for _, _, load in loads_of(report)):
        yield (
            "$/1M",
            "the price of an hour over the tokens of an hour. Those of input and of output each "
            f"charge the whole server to one stream: never add them. F3: {LABELS['F3']}",
        )
        yield "F1", f"{LABELS['F1']}: as if prompts took no time; seen in announcements"
        yield "F2", f"{LABELS['F2']}: what one client sees, waiting included; seen in announcements"
        yield (
            "3:1 blend",
            "three tokens in to one out, with the tokens in for free; a quarter of $/1M output",
        )
    if report.rounds >= 3:
        yield (
            "Intervals",
            f"95 %, from the means of {report.rounds} rounds, by Student's t distribution",
        )


def _commands(report: BenchReport, command: str) -> list[tuple[str, str, str]]:
    """Return what can be copied: its heading, the command, and what the button says of it."""
    found = []
    if report.command:
        label = "Copy the command that measures again"
        found.append(("To measure again", report.command, label))
    if command:
        found.append(("To make this page again", command, "Copy the command that makes this page"))
    return found


_PARTS = (
    ("choices", "choices", "Best by goal"),
    ("speed", "speed", "Speed under load"),
    ("cost", "cost", "Cost under load"),
    ("quality", "quality", "Quality"),
    ("measured", "latency", "Latency"),
    ("measured", "throughput", "Throughput"),
    ("price", "price", "Price"),
    ("speculation", "speculation", "Drafts"),
    ("differences", "differences", "Differences"),
    ("limits", "limits", "Limits"),
    ("predicted", "predicted", "Predicted"),
    ("starts", "starts", "Cold start"),
    ("faults", "faults", "Failures"),
    ("setup", "setup", "What was measured"),
    ("formulas", "formulas", "Formulas"),
)


def _contents(page: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the parts that the page has, as links."""
    shown = {name: bool(page[name]) for name, _, _ in _PARTS}
    shown["limits"] = bool(page["goodput"] or page["boundaries"])
    shown["faults"] = bool(page["faults"] or page["losses"])
    return [(key, title) for name, key, title in _PARTS if shown[name]]


def _ms(time: float) -> str:
    return f"{time:,.0f} ms" if time >= 100 else f"{time:,.1f} ms"
