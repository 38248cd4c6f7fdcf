"""The recommended variant for a goal, and its confidence, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from packager.addons.bench.compare import PRICE, REQUESTS, Ratio, metric_ratio
from packager.addons.bench.names import load_words, same_load, short_names
from packager.addons.bench.tables import (
    LATENCY,
    OUTPUT,
    TPOT,
    TTFT,
    failed,
    loads_of,
    price_of,
    rate_of,
    value,
    way_of,
)
from packager.core.bench import BenchLoad, BenchReport, BenchVariant, Compared
from packager.core.units import percent, usd

Goal = Literal["cost", "throughput", "latency"]

MIXED = "different requests"  # name of the workload of benchmarks that cannot be compared
GOOD_SHARE = 0.95  # of requests within the limits, for a load to count as within them
FAILED_SHARE = 0.01  # of requests, above which a load gives no recommendation

TITLES: dict[Goal, str] = {
    "cost": "Cheapest per token",
    "throughput": "Most tokens a second",
    "latency": "Fastest for one reader",
}
# What a goal is about, where two loads are compared that stand in no table.
_COMPARED: dict[Goal, str] = {"cost": OUTPUT, "throughput": OUTPUT, "latency": TPOT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The load of a variant that serves a goal best."""

    goal: Goal
    place: int  # of the variant in the report
    variant: BenchVariant
    load: BenchLoad
    within: bool  # the limits; True where there are none


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a page begins with."""

    verdict: Literal["Best", "Within noise", "Measured", "Not measured", "No answer"]
    is_sure: bool  # no evidence against it
    sentence: str
    doubts: tuple[str, ...]  # sentences: why it may be otherwise
    pick: Pick | None


def decide(report: BenchReport, goal: Goal | None = None) -> Decision:
    """Return the best variant for a goal; without one for cost, or for speed where no price is."""
    goal = goal or default_goal(report)
    found = pick(report, goal)
    if found is None:
        return _no_answer(report)
    if is_mixed(report):
        count = f"{len(report.variants)} variants"
        sentence = f"{count}, measured with different requests: their figures do not compare."
        return Decision(verdict="Measured", is_sure=True, sentence=sentence, doubts=(), pick=None)
    name, doubts = _name(report, found.place), tuple(_doubts(report, found))
    if sum(bool(variant.loads) for variant in report.variants) < 2:
        sentence = f"{name} gives {_speeds(found.load)} at {load_words(found.load)}."
        return _decision("Measured", sentence, doubts, found)
    rival = _rival(report, found)
    noise, words = _against(report, found, rival) if rival else (None, "")
    if noise:
        assert rival is not None
        sentence = (
            f"No difference beyond noise between {name} and {_name(report, rival.place)}: {words}."
        )
        return _decision("Within noise", sentence, doubts, found)
    if rival and noise is None:
        doubts = (_unknown_noise(report), *doubts)
    compared = f": {words}" if words else ""
    best = f"{name} {_BEST[goal]}{_among(report, found)}"
    sentence = f"{best}, {_figure(found)} at {load_words(found.load)}{compared}."
    return _decision("Best", sentence, doubts, found)


def is_mixed(report: BenchReport) -> bool:
    """Whether variants got different requests."""
    return report.workload.name == MIXED


def default_goal(report: BenchReport) -> Goal:
    """Return `cost` where every load has a price, else `throughput`."""
    priced = [bool(price_of(load)) for _, _, load in loads_of(report)]
    return "cost" if priced and all(priced) else "throughput"


def pick(
    report: BenchReport, goal: Goal, *, without: int | None = None, only: int | None = None
) -> Pick | None:
    """Return the best load for a goal, of those within the limits where there are such.

    Loads with failures count only where there is no other; `without` and `only` are places of
    variants.  None: no load has the figure.
    """
    found = [
        Pick(goal=goal, place=place, variant=variant, load=load, within=is_within(report, load))
        for place, variant, load in loads_of(report)
        if place != without
        and only in (None, place)
        and load.answered
        and _score(goal, load) is not None
    ]
    return min(
        found,
        key=lambda one: (not one.within, _loses(one.load), _score(goal, one.load), one.place),
        default=None,
    )


def is_within(report: BenchReport, load: BenchLoad) -> bool:
    """Whether enough requests of a load kept the limits; True where there are none."""
    limits = report.limits
    if limits.ttft_ms is limits.tpot_ms is limits.latency_ms is None:
        return True
    return load.good is not None and load.good >= GOOD_SHARE


def comparison_at(
    report: BenchReport, variant: str, load: BenchLoad, metric: str
) -> Compared | None:
    """Return how a variant compares with the first one under a load; None if unknown."""
    return next(
        (
            one
            for one in report.compared
            if (one.variant, one.metric) == (variant, metric)
            and (one.concurrency, one.rate) == (load.concurrency, load.rate)
        ),
        None,
    )


def quality_words(variant: BenchVariant) -> str:
    """Return what is known of a variant's quality, in a few words."""
    if variant.quality is not None:
        if not variant.quality.is_measurable:
            return "no measurable change"
        agreed = variant.quality.quality.top1_agreement
        mean = variant.quality.quality.kld_mean
        parts = [f"{percent(agreed, 1)} same first choice"] if agreed is not None else []
        parts += [f"mean KLD {mean:.3g}"] if mean is not None else []
        return ", ".join(parts) or "measured without a number"
    return {None: "not known", "none": "not quantized"}.get(
        variant.setup.quantization, "quantized, not measured"
    )


_BEST: dict[Goal, str] = {
    "cost": "costs least",
    "throughput": "gives the most tokens a second",
    "latency": "is fastest for one reader",
}


def _among(report: BenchReport, found: Pick) -> str:
    """Return of which loads a pick is the best, where one that was left out has a better figure."""
    score = _score(found.goal, found.load)
    better = [
        load
        for _, _, load in loads_of(report)
        if load.answered
        and (other := _score(found.goal, load)) is not None
        and other < (score or 0)
    ]
    if found.within and not all(is_within(report, load) for load in better):
        return " of the loads within the limits"
    if not _loses(found.load) and any(map(_loses, better)):
        return f" of the loads that lost at most {percent(FAILED_SHARE)} of their requests"
    return ""


def _decision(
    verdict: Literal["Best", "Within noise", "Measured"],
    sentence: str,
    doubts: tuple[str, ...],
    found: Pick,
) -> Decision:
    return Decision(
        verdict=verdict, is_sure=not doubts, sentence=sentence, doubts=doubts, pick=found
    )


def _no_answer(report: BenchReport) -> Decision:
    failures = [variant.failure for variant in report.variants if variant.failure]
    if not any(True for _ in loads_of(report)):
        why = f": {failures[0]}" if failures else ": `packager bench` does it"
        what = "No load" if any(variant.started for variant in report.variants) else "Nothing"
        return Decision(
            verdict="Not measured",
            is_sure=True,
            sentence=f"{what} was measured{why}.",
            doubts=(),
            pick=None,
        )
    errors = [error for _, _, load in loads_of(report) for error in load.errors]
    most = max(errors, key=lambda error: error.count, default=None)
    why = f": {most.reason}" if most else ""
    count = len(report.variants)
    several = f"None of the {count} variants" if count > 1 else "The variant"
    never = "answered a request" if count > 1 else "answered no request"
    return Decision(
        verdict="No answer",
        is_sure=True,
        sentence=f"{several} {never}{why}.",
        doubts=(),
        pick=None,
    )


def _score(goal: Goal, load: BenchLoad) -> float | None:
    """Return what a goal makes small; None where it was not measured."""
    if goal == "cost":
        return price_of(load)
    if goal == "throughput":
        rate = rate_of(load)
        return -rate if rate else None
    time = value(load, TPOT, "p50")
    return time if time is not None else value(load, LATENCY, "p50")


def _loses(load: BenchLoad) -> bool:
    return failed(load) > FAILED_SHARE * load.requests


def _rival(report: BenchReport, best: Pick) -> Pick | None:
    """Return what a pick is compared with: the first variant, or the next best after it."""
    if best.place == 0:
        rival = pick(report, best.goal, without=0)
        counts = rival and rival.within >= best.within and _loses(rival.load) <= _loses(best.load)
        return rival if counts else None
    first = report.variants[0]
    load = next((one for one in first.loads if same_load(one, best.load)), None)
    if load is None or not load.answered:
        return None
    within = is_within(report, load)
    return Pick(goal=best.goal, place=0, variant=first, load=load, within=within)


def _against(report: BenchReport, best: Pick, rival: Pick) -> tuple[bool | None, str]:
    """Return whether the difference is noise (None if unknown), and its description.

    Both are taken under one load: that of the pick that is not the first variant.
    """
    other = rival if best.place == 0 else best
    name = _name(report, rival.place)
    at = "" if same_load(other.load, best.load) else f" at {load_words(other.load)}"
    tokens = _over(report, best, other, OUTPUT) or _over(report, best, other, REQUESTS)
    if best.goal == "cost" and (price := _over(report, best, other, PRICE)):
        more = f", with {tokens.ratio:.2f} times its tokens a second" if tokens else ""
        return price.is_noise, f"{_price_words(price, name)}{at}{more}"
    if best.goal == "latency":
        time = _over(report, best, other, TPOT) or _over(report, best, other, LATENCY)
        if time is None:
            return None, ""
        faster = _inverse(time)
        words = f"{faster.ratio:.2f} times as fast as {name}{at}{_span(faster)}"
        return faster.is_noise, words
    if tokens is None:
        return None, ""
    words = f"{tokens.ratio:.2f} times the tokens a second of {name}{at}{_span(tokens)}"
    return tokens.is_noise, words


def _over(report: BenchReport, best: Pick, other: Pick, metric: str) -> Ratio | None:
    """Return a metric of the best pick over its rival's, from the table of comparisons."""
    found = comparison_at(report, other.variant.name, other.load, metric)
    if found is None:
        return None
    ratio = Ratio(ratio=found.ratio, low=found.low, high=found.high)
    return _inverse(ratio) if best.place == 0 else ratio


def _inverse(found: Ratio) -> Ratio:
    return Ratio(
        ratio=1 / found.ratio,
        low=1 / found.high if found.high else None,
        high=1 / found.low if found.low else None,
    )


def _span(found: Ratio) -> str:
    if found.low is None or found.high is None:
        return ""
    return f" (95 % interval {found.low:.2f} to {found.high:.2f})"


def _price_words(price: Ratio, name: str) -> str:
    """Return how much less a pick costs, or how many times as much."""
    if price.ratio >= 1 or price.is_noise:
        return f"{price.ratio:.2f} times the price of {name}{_span(price)}"
    less = f"{percent(1 - price.ratio)} less than {name}"
    if price.low is None or price.high is None:
        return less
    return f"{less} (95 % interval {percent(1 - price.high)} to {percent(1 - price.low)})"


def _figure(found: Pick) -> str:
    """Return the figure that a goal is about."""
    load = found.load
    if found.goal == "cost":
        assert load.prices is not None
        return f"${usd(price_of(load) or 0)} per million tokens {way_of(load)}"
    if found.goal == "throughput":
        return f"{_rate(load)} tokens/s"
    each = value(load, TPOT, "p50")
    if each is None:
        return f"{value(load, LATENCY, 'p50'):,.0f} ms per answer"
    return f"{each:,.1f} ms per token"


def _speeds(load: BenchLoad) -> str:
    """Return what is known of a load's speed as words."""
    first, each = value(load, TTFT, "p50"), value(load, TPOT, "p50")
    parts = [f"{_rate(load)} tokens/s"] if rate_of(load) is not None else []
    parts += [f"first token after {first:,.0f} ms"] if first is not None else []
    parts += [f"{each:,.1f} ms per token"] if each is not None else []
    return ", ".join(parts)


def _rate(load: BenchLoad) -> str:
    rate = rate_of(load) or 0
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:,.2f}"


def _doubts(report: BenchReport, found: Pick) -> Iterator[str]:
    """Yield why another choice may be right."""
    if not found.within:
        yield "No load kept the limits: this is the best of those beyond them."
    if lost := failed(found.load):
        share = percent(lost / found.load.requests, 1)
        yield f"{lost:,} of its {found.load.requests:,} requests ({share}) were not answered."
    if even := [_name(report, place) for place in _even(report, found)]:
        yield f"Within noise of it: {', '.join(even)}."
    silent = [
        _name(report, place)
        for place, variant in enumerate(report.variants)
        if not any(load.answered for load in variant.loads)
    ]
    if silent:
        names = ", ".join(silent)
        yield f"Not compared, since {'it' if len(silent) == 1 else 'they'} never answered: {names}."
    if quality_words(found.variant) == "quantized, not measured":
        yield "Its quality was not measured: `packager build --evaluate` does."
    if report.incomplete:
        yield f"The benchmark ended early: {report.incomplete}."


def _even(report: BenchReport, best: Pick) -> Iterator[int]:
    """Yield the places of variants that the rounds do not distinguish from the best one.

    The rival has its own sentence.  Rounds of different benchmarks were not interleaved, so that
    variants without an interval are skipped.
    """
    if all(one.is_noise is None for one in report.compared):
        return
    rival = _rival(report, best)
    for place, variant in enumerate(report.variants):
        if place == best.place or (rival and place == rival.place):
            continue
        for load in variant.loads:
            if same_load(load, best.load) and _hour(load) == _hour(best.load):
                tag = _COMPARED[best.goal] if way_of(load) == "out" else REQUESTS
                ratio = metric_ratio(best.load, load, tag)
                if ratio is not None and ratio.is_noise:
                    yield place


def _hour(load: BenchLoad) -> float | None:
    return load.prices.usd_hour * (1 - load.prices.discount) if load.prices else None


def _unknown_noise(report: BenchReport) -> str:
    if report.rounds < 3:
        rounds = "once" if report.rounds == 1 else f"{report.rounds} times"
        return f"Each load was measured {rounds}: the difference may be noise. Three rounds tell."
    return "How much of the difference is noise is not known."


def _name(report: BenchReport, place: int) -> str:
    return short_names([variant.name for variant in report.variants])[place]
