"""A benchmark against an earlier one of the same server, with intervals that say what is slower.

The two were not measured by turns, so their rounds make no pairs: the interval is that of the
difference of two means of logarithms, by Welch, with whole degrees of freedom, rounded down.  It
knows the noise between rounds, not what else a machine did on another day.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from packager.addons.bench.compare import (
    FEWEST_ROUNDS,
    OUTPUT,
    REQUESTS,
    SMALLEST,
    TPOT,
    TTFT,
    Ratio,
    compared,
    round_values,
)
from packager.addons.bench.intervals import t_quantile
from packager.addons.bench.merge import Named, merge, workload_difference
from packager.addons.bench.names import load_words, same_load
from packager.addons.bench.options import COMPARED_ROUNDS, BenchOptions
from packager.addons.bench.reading import read_baseline
from packager.core.bench import BenchLoad, BenchReport, BenchVariant, Compared
from packager.core.errors import BenchRejected, UsageError

EXIT_SLOWER = 9
METRICS = (OUTPUT, REQUESTS, TTFT, TPOT)


def take_baseline(file: str | None, asked: BenchOptions) -> tuple[Named | None, BenchOptions]:
    """Read the baseline; return the options with enough rounds to compare with it."""
    if file is None:
        return None, asked
    baseline = read_baseline(file)
    check_baseline(baseline)
    return baseline, replace(asked, rounds=asked.rounds or COMPARED_ROUNDS)


def check_baseline(baseline: Named) -> None:
    """Raise `UsageError` where nothing can be told to be slower than it, before any measuring."""
    loads = [load for variant in baseline.report.variants for load in variant.loads]
    if len(baseline.report.variants) != 1 or not loads:
        raise UsageError(
            f"the baseline {baseline.name!r} is not a benchmark of one server",
            hint="name what `packager bench SERVER --output FILE.json` wrote",
        )
    if fewest := [load for load in loads if len(load.rounds) < FEWEST_ROUNDS]:
        raise UsageError(
            f"the baseline {baseline.name!r} has {len(fewest[0].rounds)} rounds of a load, which "
            "tell no noise",
            hint=f"measure it with --rounds {FEWEST_ROUNDS} or more",
        )


def against_baseline(report: BenchReport, baseline: Named) -> BenchReport:
    """Return both side by side, the baseline first, with each load of both compared.

    Raises `UsageError` where they sent different requests or have no load in common.
    """
    if what := workload_difference(baseline.report.workload, report.workload):
        raise UsageError(
            f"the baseline {baseline.name!r} sent other requests: {what}",
            hint="measure with the options of its command, which `packager report` shows",
        )
    both = merge([_named("baseline", baseline.report), _named("now", report)])
    before, now = both.variants[0], both.variants[1]
    compared = tuple(_compare(before, now))
    if not compared:
        raise UsageError(
            f"no load was measured that the baseline {baseline.name!r} has, too",
            hint=f"it has {', '.join(load_words(load) for load in before.loads)}",
        )
    note = "the baseline was measured at another time: intervals hold the noise of rounds alone"
    return both.model_copy(update={"compared": compared, "notes": (*report.notes, note)})


def _named(when: str, report: BenchReport) -> Named:
    """Return a report whose variants say when they were measured."""
    variants = (one.model_copy(update={"name": f"{one.name} ({when})"}) for one in report.variants)
    return Named(name=when, report=report.model_copy(update={"variants": tuple(variants)}))


def refuse_slower(both: BenchReport) -> None:
    """Raise `BenchRejected` with status 9 where an interval says that a load is slower now."""
    slower = [one for one in both.compared if _is_slower(one)]
    if not slower:
        return
    complaints = [
        f"{_WORDS[one.metric]} at {_load(one)} is {one.ratio:.3g} times the baseline's "
        f"({one.low:.3g} to {one.high:.3g})"
        for one in slower
    ]
    raise BenchRejected(
        f"slower than the baseline: {'; '.join(complaints)}",
        hint="the figures are above; measure again on an idle machine before you believe it",
        figures=both.model_dump(mode="json", exclude_none=True),
        code="SlowerThanBaseline",
        exit_code=EXIT_SLOWER,
    )


_WORDS = {
    OUTPUT: "output tokens a second",
    REQUESTS: "requests a second",
    TTFT: "time to first token",
    TPOT: "time per output token",
}


def _load(one: Compared) -> str:
    return f"{one.rate:g} requests a second" if one.rate else f"{one.concurrency} at once"


def _is_slower(one: Compared) -> bool:
    if one.low is None or one.high is None:
        return False
    return one.high < 1 if one.metric in (OUTPUT, REQUESTS) else one.low > 1


def _compare(before: BenchVariant, now: BenchVariant) -> Iterator[Compared]:
    for load in now.loads:
        base = next((one for one in before.loads if same_load(one, load)), None)
        for tag in METRICS if base else ():
            assert base is not None
            if (found := _ratio(base, load, tag)) is not None:
                yield compared(now.name, load, tag, found)


def _ratio(base: BenchLoad, load: BenchLoad, tag: str) -> Ratio | None:
    old, new = (
        [math.log(value) for value in round_values(one, tag) if value] for one in (base, load)
    )
    if not old or not new:
        return None
    return unpaired_ratio(old, new)


def unpaired_ratio(old: Sequence[float], new: Sequence[float]) -> Ratio:
    """Return the ratio of two means of logarithms, with its 95 % interval by Welch."""
    means = [math.fsum(one) / len(one) for one in (old, new)]
    ratio = math.exp(means[1] - means[0])
    if min(len(old), len(new)) < FEWEST_ROUNDS:
        return Ratio(ratio=ratio)
    parts = [
        math.fsum((value - mean) ** 2 for value in one) / (len(one) - 1) / len(one)
        for one, mean in zip((old, new), means, strict=True)
    ]
    if sum(parts) < SMALLEST**2:
        return Ratio(ratio=ratio, low=ratio, high=ratio)
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(one) - 1) for part, one in zip(parts, (old, new), strict=True)
    )
    half = t_quantile(max(1, math.floor(freedom))) * math.sqrt(sum(parts))
    return Ratio(ratio=ratio, low=ratio * math.exp(-half), high=ratio * math.exp(half))
