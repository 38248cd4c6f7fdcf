"""Variants against the first one, under the same load, and whether a difference is noise.

Rounds are interleaved, so that round k of two variants was measured at about the same time: their
ratio is free of what the machine did meanwhile.  The interval is that of the mean of the logarithms
of these ratios, by Student's distribution (`intervals`).  It holds 95 % of the time for each
comparison alone: among many of equal servers, one in twenty is called a difference.  Intervals are
not widened for their number, which would hide true differences behind three rounds; reports state
the number instead (`chance_findings`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from packager.addons.bench.intervals import CONFIDENCE, mean_interval
from packager.addons.bench.names import same_load
from packager.core.bench import BenchLoad, BenchVariant, Compared, Round

FEWEST_ROUNDS = 3
OUTPUT, TTFT, TPOT = "output_token_throughput", "time_to_first_token", "inter_token_latency"
LATENCY = "request_latency"
REQUESTS = "request_throughput"  # of vectors and scores, which have no tokens of an answer
PRICE = "cost_per_million_output_tokens"  # as in exports: AIPerf knows no prices
SMALLEST = 1e-9  # of a ratio's logarithm: a difference of arithmetic, not of servers

_UNKNOWN = {"low": None, "high": None, "is_noise": None}

_Measure = Callable[[Round], float | None]
_ROUNDS: MappingProxyType[str, _Measure] = MappingProxyType(
    {
        OUTPUT: lambda one: one.output_token_throughput,
        REQUESTS: lambda one: (
            one.request_throughput if one.output_token_throughput is None else None
        ),
        TTFT: lambda one: one.ttft_p50_ms,
        TPOT: lambda one: one.tpot_p50_ms,
        LATENCY: lambda one: one.latency_p50_ms,
    }
)
_WHOLE: MappingProxyType[str, str] = MappingProxyType(
    {OUTPUT: "avg", REQUESTS: "avg", TTFT: "p50", TPOT: "p50", LATENCY: "p50"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A value over the first variant's. Without an interval, noise is unknown."""

    ratio: float
    low: float | None = None
    high: float | None = None

    @property
    def is_noise(self) -> bool | None:
        if self.low is None or self.high is None:
            return None
        return self.low <= 1 <= self.high


def compare(
    variants: Sequence[BenchVariant], *, are_interleaved: bool = True
) -> tuple[Compared, ...]:
    """Compare every variant with the first one, load by load and metric by metric.

    Rounds that were not interleaved, such as those of searches, make no pairs: their noise is
    unknown.
    """
    if not variants:
        return ()
    first, *others = variants
    return tuple(
        found if are_interleaved else found.model_copy(update=_UNKNOWN)
        for variant in others
        for load in variant.loads
        for base in first.loads
        if same_load(base, load)
        for found in _compare_loads(variant.name, base, load)
    )


def _compare_loads(name: str, base: BenchLoad, load: BenchLoad) -> Iterator[Compared]:
    left_out = OUTPUT if "text_throughput" in load.metrics else REQUESTS
    ratios = {tag: metric_ratio(base, load, tag) for tag in _ROUNDS if tag != left_out}
    throughput = ratios.get(OUTPUT) or ratios.get(REQUESTS)
    if throughput and base.prices and load.prices:
        hours = _hour(load) / _hour(base) if _hour(base) else None
        ratios[PRICE] = _inverse(throughput, hours) if hours else None
    for tag, found in ratios.items():
        if found is not None:
            yield compared(name, load, tag, found)


def compared(name: str, load: BenchLoad, metric: str, found: Ratio) -> Compared:
    """Return a ratio as the report has it: of a variant, under one load."""
    return Compared(
        variant=name,
        concurrency=load.concurrency,
        rate=load.rate,
        metric=metric,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        is_noise=found.is_noise,
    )


def metric_ratio(base: BenchLoad, load: BenchLoad, tag: str) -> Ratio | None:
    """Return the ratio of one metric; None where one of both has none."""
    values = [
        (_ROUNDS[tag](one), _ROUNDS[tag](other))
        for one, other in zip(base.rounds, load.rounds, strict=False)
    ]
    pairs = [(one, other) for one, other in values if one and other]
    if pairs:
        return paired_ratio([one for one, _ in pairs], [other for _, other in pairs])
    whole = [
        getattr(metric, _WHOLE[tag]) if (metric := side.metrics.get(tag)) else None
        for side in (base, load)
    ]
    return Ratio(ratio=whole[1] / whole[0]) if whole[0] and whole[1] else None


def round_values(load: BenchLoad, tag: str) -> list[float]:
    """Return a metric of each round that has it."""
    return [value for one in load.rounds if (value := _ROUNDS[tag](one))]


def paired_ratio(base: Sequence[float], other: Sequence[float]) -> Ratio:
    """Return the mean ratio of positive values, paired by round, with its 95 % interval.

    The mean is the geometric one, so that A over B is the inverse of B over A.
    """
    logs = [math.log(new / old) for old, new in zip(base, other, strict=True)]
    mean = math.fsum(logs) / len(logs)
    if abs(mean) < SMALLEST:
        mean = 0.0
    if len(logs) < FEWEST_ROUNDS:
        return Ratio(ratio=math.exp(mean))
    half = mean_interval(logs).high - math.fsum(logs) / len(logs)
    half = 0.0 if half < SMALLEST else half
    return Ratio(ratio=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


def _inverse(throughput: Ratio, hours: float) -> Ratio:
    """Return the ratio of prices: of the hours' prices over that of the throughputs."""
    return Ratio(
        ratio=hours / throughput.ratio,
        low=None if throughput.high is None else hours / throughput.high,
        high=None if throughput.low is None else hours / throughput.low,
    )


def _hour(load: BenchLoad) -> float:
    return load.prices.usd_hour * (1 - load.prices.discount) if load.prices else 0.0


def chance_findings(compared: Iterable[Compared]) -> float:
    """Return how many comparisons of equal servers would be called differences.

    Prices follow from throughputs, so they are not counted.
    """
    counted = [one for one in compared if one.is_noise is not None and one.metric != PRICE]
    return (1 - CONFIDENCE) * len(counted)
