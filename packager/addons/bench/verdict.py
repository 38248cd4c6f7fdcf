"""Comparisons in words."""

from __future__ import annotations

from collections.abc import Sequence

from packager.addons.bench.compare import LATENCY, OUTPUT, PRICE, REQUESTS, TPOT, TTFT
from packager.core.bench import Compared
from packager.core.units import percent

UNCHANGED = "no measurable change"
_TIMES_TOKENS, _TIMES = 1.5, 2.0  # from here on `1.8x as many` reads better than `80 % more`
_MORE = {OUTPUT: "tokens/s", REQUESTS: "requests/s"}
_NAMES = {**_MORE, PRICE: "price", TTFT: "TTFT", TPOT: "TPOT", LATENCY: "latency"}


def describe(compared: Sequence[Compared]) -> str:
    """Return the comparisons of one variant under one load in words.

    `1.8x as many tokens/s, 61 % cheaper; no measurable change of TTFT`.
    """
    noise = [_NAMES.get(one.metric, one.metric) for one in compared if one.is_noise]
    if compared and len(noise) == len(compared):
        return "no measurable difference"
    parts = [describe_one(one) for one in compared if not one.is_noise]
    if any(one.is_noise is None for one in compared):
        parts.append("from fewer than 3 rounds, so it may be noise")
    text = ", ".join(parts)
    if not noise:
        return text
    return f"{text}; {UNCHANGED} of {', '.join([*noise[:-2], ' and '.join(noise[-2:])])}"


def describe_one(one: Compared) -> str:
    """Return one comparison in words."""
    name = _NAMES.get(one.metric, one.metric)
    if one.is_noise:
        return f"{name} {UNCHANGED}"
    if one.metric in _MORE:
        if one.ratio >= _TIMES_TOKENS:
            return f"{_times(one.ratio)} as many {name}"
        return f"{_share(one.ratio)} {'more' if one.ratio > 1 else 'fewer'} {name}"
    if one.metric == PRICE:
        if one.ratio >= _TIMES:
            return f"{_times(one.ratio)} as expensive"
        return f"{_share(one.ratio)} {'dearer' if one.ratio > 1 else 'cheaper'}"
    if one.ratio >= _TIMES:
        return f"{name} {_times(one.ratio)} as long"
    return f"{name} {_share(one.ratio)} {'longer' if one.ratio > 1 else 'shorter'}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio < 9.95 else f"{ratio:.0f}x"


def _share(ratio: float) -> str:
    change = abs(ratio - 1)
    return percent(change) if change >= 0.01 else "less than 1 %"
