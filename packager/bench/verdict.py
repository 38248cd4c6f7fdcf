"""Comparisons in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packager.bench.compare import LATENCY, OUTPUT, PRICE, TPOT, TTFT
from packager.bench.names import load_words, short_names
from packager.bench.pareto import has_few_errors
from packager.core.bench import BenchLoad, BenchVariant, Compared
from packager.core.quality import QualityReport
from packager.core.units import percent

UNCHANGED = "no measurable change"
_TIMES_TOKENS, _TIMES = 1.5, 2.0  # from here on `1.8x as many` reads better than `80 % more`
_NAMES = {TTFT: "TTFT", TPOT: "TPOT", LATENCY: "latency"}


def describe(compared: Sequence[Compared]) -> str:
    """Return the comparisons of one variant under one load in words.

    `1.8x as many tokens/s, 61 % cheaper, TTFT no measurable change`.
    """
    parts = [describe_one(one) for one in compared]
    if any(one.is_noise is None for one in compared):
        parts.append("from fewer than 3 rounds, so it may be noise")
    return ", ".join(parts)


def describe_one(one: Compared) -> str:
    """Return one comparison in words."""
    if one.metric == OUTPUT:
        if one.is_noise:
            return f"tokens/s {UNCHANGED}"
        if one.ratio >= _TIMES_TOKENS:
            return f"{_times(one.ratio)} as many tokens/s"
        return f"{_share(one.ratio)} {'more' if one.ratio > 1 else 'fewer'} tokens/s"
    if one.metric == PRICE:
        if one.is_noise:
            return f"price {UNCHANGED}"
        if one.ratio >= _TIMES:
            return f"{_times(one.ratio)} as expensive"
        return f"{_share(one.ratio)} {'dearer' if one.ratio > 1 else 'cheaper'}"
    name = _NAMES.get(one.metric, one.metric)
    if one.is_noise:
        return f"{name} {UNCHANGED}"
    if one.ratio >= _TIMES:
        return f"{name} {_times(one.ratio)} as long"
    return f"{name} {_share(one.ratio)} {'longer' if one.ratio > 1 else 'shorter'}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio < 9.95 else f"{ratio:.0f}x"


def _share(ratio: float) -> str:
    change = abs(ratio - 1)
    return percent(change) if change >= 0.01 else "less than 1 %"


def closing_sentence(variants: Sequence[BenchVariant], compared: Sequence[Compared]) -> str:
    """Return what to take home, in one sentence; "" where nothing can be compared.

    It is of the greatest load that two variants share without many errors, and of the variant
    that gains most in price, or in tokens/s where no price is known.
    """
    names = dict(
        zip(
            (one.name for one in variants), short_names([one.name for one in variants]), strict=True
        )
    )
    found = [
        (variant, load, by_metric)
        for variant in variants[1:]
        if (load := _greatest_load(variants[0], variant)) is not None
        and OUTPUT in (by_metric := _of(compared, variant, load))
    ]
    if not found:
        return ""
    variant, load, by_metric = min(found, key=lambda one: (not _gains(one[2]), _cost(one[2])))
    first, at = names[variants[0].name], f"at {load_words(load)}"
    decisive = _decisive(by_metric)
    if all(_decisive(one).is_noise for *_, one in found):
        others = "the others" if len(found) > 1 else names[variant.name]
        return f"No measurable difference between {first} and {others}, {at}."
    unsure = ", from fewer than 3 rounds" if decisive.is_noise is None else ""
    if not _gains(by_metric):
        behind = describe_one(decisive)
        return f"{first} is not beaten; next is {names[variant.name]}: {behind}, {at}{unsure}."
    parts = [_quality(variant.quality), describe_one(by_metric[OUTPUT])]
    if PRICE in by_metric:
        parts.append(f"{describe_one(by_metric[PRICE])} per token")
    gained = ", ".join(part for part in parts if part)
    return f"{names[variant.name]} against {first}, {at}{unsure}: {gained}."


def _decisive(by_metric: Mapping[str, Compared]) -> Compared:
    return by_metric.get(PRICE, by_metric[OUTPUT])


def _gains(by_metric: Mapping[str, Compared]) -> bool:
    return not _decisive(by_metric).is_noise and _cost(by_metric) < 1


def _cost(by_metric: Mapping[str, Compared]) -> float:
    """Return the ratio of prices, or of the time that a token takes of the server."""
    price = by_metric.get(PRICE)
    return price.ratio if price else 1 / by_metric[OUTPUT].ratio


def _greatest_load(first: BenchVariant, other: BenchVariant) -> BenchLoad | None:
    shared = [
        load
        for load in other.loads
        if has_few_errors(load)
        and any(
            (base.concurrency, base.rate) == (load.concurrency, load.rate) and has_few_errors(base)
            for base in first.loads
        )
    ]
    return max(shared, key=lambda load: (load.rate or 0, load.concurrency or 0), default=None)


def _of(
    compared: Sequence[Compared], variant: BenchVariant, load: BenchLoad
) -> dict[str, Compared]:
    return {
        one.metric: one
        for one in compared
        if (one.variant, one.concurrency, one.rate) == (variant.name, load.concurrency, load.rate)
    }


def _quality(report: QualityReport | None) -> str:
    if report is None:
        return ""
    if not report.is_measurable:
        return "same quality within noise"
    kld = report.quality.kld_mean
    return "measurably other answers" + ("" if kld is None else f" (mean KLD {kld:.3g})")
