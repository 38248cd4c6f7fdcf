"""The report of cold starts: medians and intervals by phase, what was predicted, what to change."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from packager.addons.bench.compare import FEWEST_ROUNDS, paired_ratio
from packager.addons.bench.intervals import mean_interval
from packager.addons.bench.startup_session import StartResults
from packager.addons.bench.targets import BenchTarget
from packager.core.startup import (
    PHASES,
    ComparedStart,
    OneStart,
    PhaseName,
    Spread,
    StartedVariant,
    StartupReport,
)
from packager.core.version import __version__
from packager.estimate.performance.startup_advice import ImageTraits, advise

INTERRUPTED = "interrupted"
_LEAST_S = 0.05  # of a phase that is compared: shorter ones are all noise


def make_startup_report(
    targets: Sequence[BenchTarget],
    results: StartResults,
    *,
    measured: str,
    machine: str,
    command: str,
) -> StartupReport:
    """Compute all figures; an image that failed is in it with its reason."""
    variants = tuple(_variant(target, results) for target in targets)
    return StartupReport(
        packager_version=__version__,
        measured=measured,
        machine=machine,
        rounds=results.rounds,
        startups=variants,
        compared=tuple(_compared(variants)),
        notes=tuple(_notes(variants)),
        command=command,
        incomplete=INTERRUPTED if results.is_interrupted else "",
    )


def spread(values: Sequence[float]) -> Spread | None:
    """Return the median and, of three and more values, the interval of their mean."""
    if not values:
        return None
    median = round(statistics.median(values), 3)
    if len(values) < FEWEST_ROUNDS:
        return Spread(median=median)
    interval = mean_interval(values)
    return Spread(median=median, low=round(max(0.0, interval.low), 3), high=round(interval.high, 3))


def _variant(target: BenchTarget, results: StartResults) -> StartedVariant:
    starts = tuple(results.starts.get(target.name, ()))
    failure = results.failures.get(target.name)
    phases = {
        name: found
        for name in PHASES
        if (found := spread([one.phases[name] for one in starts if name in one.phases]))
    }
    peaks = [one.peak_memory_bytes for one in starts if one.peak_memory_bytes is not None]
    record = target.record
    return StartedVariant(
        name=target.name,
        setup=target.setup,
        starts=starts,
        phases=phases,
        untold=spread([one.untold_s for one in starts]),
        seconds=spread([one.seconds for one in starts]),
        ready=spread([one.ready_s for one in starts]),
        cpu_seconds=spread([one.cpu_seconds for one in starts if one.cpu_seconds is not None]),
        peak_memory_bytes=max(peaks, default=None),
        predicted=record.startup if record else None,
        next=advise({name: one.median for name, one in phases.items()}, _traits(target)),
        failure=failure.message if failure else "",
    )


def _traits(target: BenchTarget) -> ImageTraits:
    """Describe an image by its record and labels."""
    record = target.record
    has_compiled = record is not None and any(one.role == "compiled" for one in record.layers)
    if record is None:
        return ImageTraits(kind="", engine=target.setup.engine.partition(" ")[0])
    return ImageTraits(
        kind=record.startup.kind if record.startup else "",
        engine=record.engine,
        compiler=(record.request.compile or "auto") if has_compiled else "",
        mounted=record.request.weights == "mounted",
    )


def _compared(variants: Sequence[StartedVariant]) -> Iterator[ComparedStart]:
    """Yield every variant over the first one, paired by round."""
    first, *others = variants
    for other in others:
        for phase in ("seconds", "cpu_seconds", *PHASES):
            mine, theirs = _by_round(first.starts, phase), _by_round(other.starts, phase)
            rounds = sorted(mine.keys() & theirs.keys())
            if not rounds:
                continue
            ratio = paired_ratio([mine[at] for at in rounds], [theirs[at] for at in rounds])
            yield ComparedStart(
                variant=other.name,
                phase=phase,
                ratio=round(ratio.ratio, 4),
                low=None if ratio.low is None else round(ratio.low, 4),
                high=None if ratio.high is None else round(ratio.high, 4),
                is_noise=ratio.is_noise,
            )


def _by_round(starts: Sequence[OneStart], phase: str) -> Mapping[int, float]:
    """Return what a phase took in each round, where it took long enough to be compared."""
    found: dict[int, float | None] = {}
    for one in starts:
        if phase == "seconds":
            found[one.round] = one.seconds
        elif phase == "cpu_seconds":
            found[one.round] = one.cpu_seconds
        else:
            found[one.round] = _phase_of(one, phase)
    return {at: value for at, value in found.items() if value is not None and value >= _LEAST_S}


def _phase_of(one: OneStart, phase: str) -> float | None:
    return next((seconds for name, seconds in one.phases.items() if name == phase), None)


def _notes(variants: Sequence[StartedVariant]) -> Iterator[str]:
    if any(one.starts and "pull" not in one.phases for one in variants):
        yield (
            "images were in the engine: --pull removes and pulls each before every start. Files "
            "that the machine's memory still holds are read faster than on a new node"
        )
    for one in variants:
        if one.starts and (lacking := _not_told(one)):
            yield f"{one.name}: its log does not tell {', '.join(lacking)}"


def _not_told(variant: StartedVariant) -> list[str]:
    inner: tuple[PhaseName, ...] = ("import", "weights", "compile", "ready")
    return [name for name in inner if name not in variant.phases]
