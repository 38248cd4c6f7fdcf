"""The report of a benchmark, from what was measured and what is known of each server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from packager.addons.bench.compare import compare
from packager.addons.bench.metrics import load_figures
from packager.addons.bench.pareto import pareto
from packager.addons.bench.prices import prices_of
from packager.addons.bench.report_notes import report_notes
from packager.addons.bench.session import OneLoad, Results
from packager.addons.bench.targets import BenchTarget
from packager.core.bench import (
    BenchLoad,
    BenchReport,
    BenchVariant,
    BenchWorkload,
    ContainerUse,
    Limits,
    Predicted,
)
from packager.core.version import __version__

INTERRUPTED = "interrupted"

Predict = Callable[[BenchTarget, Sequence[BenchLoad]], Mapping[int, Predicted]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HourPrice:
    """What an hour of an instance costs."""

    usd: float
    source: str  # such as `catalog: SageMaker, us-east-1, 2026-10-01`


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Contents of a report beside its figures."""

    workload: BenchWorkload
    limits: Limits
    measured: str  # when, in UTC
    machine: str
    command: str
    price_of: Callable[[BenchTarget], HourPrice | None]
    predict: Predict
    discount: float = 0.0


def make_report(
    targets: Sequence[BenchTarget], results: Results, about: Circumstances
) -> BenchReport:
    """Compute all figures; a server that failed is in it with its reason."""
    variants = tuple(_variant(target, results, about) for target in targets)
    compared = compare(variants, are_interleaved=not results.searches)
    return BenchReport(
        packager_version=__version__,
        measured=about.measured,
        machine=about.machine,
        workload=about.workload,
        limits=about.limits,
        rounds=results.rounds,
        variants=variants,
        compared=compared,
        pareto=pareto(variants),
        notes=report_notes(variants, compared),
        command=about.command,
        incomplete=INTERRUPTED if results.is_interrupted else "",
    )


def _variant(target: BenchTarget, results: Results, about: Circumstances) -> BenchVariant:
    loads = tuple(
        _load(rounds, target, about)
        for _, found in results.by_level(target.name)
        if (rounds := [one for one in found if one.run.results])
    )
    predicted = about.predict(target, loads)
    loads = tuple(
        load.model_copy(update={"predicted": found})
        if (found := predicted.get(load.concurrency or 0)) and not load.rate
        else load
        for load in loads
    )
    search = results.searches.get(target.name)
    failure = results.failures.get(target.name)
    start_s = results.start_s.get(target.name)
    model = target.setup.model or results.models.get(target.name, "")
    return BenchVariant(
        name=target.name,
        setup=target.setup.model_copy(update={"model": model}),
        loads=loads,
        quality=target.record.quality if target.record else None,
        boundary=search.boundary if search else None,
        start_s=None if start_s is None else round(start_s, 3),
        failure=failure.message if failure else "",
    )


def _load(rounds: Sequence[OneLoad], target: BenchTarget, about: Circumstances) -> BenchLoad:
    load = load_figures([one.run for one in rounds], about.limits)
    changes: dict[str, object] = {"use": total_use([one.use for one in rounds])}
    if price := about.price_of(target):
        changes["prices"] = prices_of(load, price.usd, discount=about.discount, source=price.source)
    return load.model_copy(update=changes)


def total_use(uses: Sequence[ContainerUse | None]) -> ContainerUse | None:
    """Return the use of several rounds: the highest of peaks, the sum of times."""
    known = [use for use in uses if use is not None]
    if not known:
        return None

    def most(name: str) -> int | None:
        return max(
            (found for use in known if (found := getattr(use, name)) is not None), default=None
        )

    times = [use.cpu_seconds for use in known if use.cpu_seconds is not None]
    return ContainerUse(
        peak_memory_bytes=most("peak_memory_bytes"),
        cpu_seconds=round(sum(times), 3) if times else None,
        gpu_memory_bytes=most("gpu_memory_bytes"),
    )
