"""Several benchmarks as one report: their variants side by side, and what sets them apart.

Rounds of different benchmarks were not interleaved: changes of the machine in between affect their
ratios.  So they have no interval, and no statement about noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packager.addons.bench.compare import compare
from packager.addons.bench.decision import MIXED
from packager.addons.bench.pareto import pareto
from packager.addons.bench.report_notes import bill_notes
from packager.core.bench import (
    BenchLoad,
    BenchReport,
    BenchVariant,
    BenchWorkload,
    Compared,
    Limits,
    Metric,
)
from packager.core.bench_setup import BenchSetup
from packager.core.errors import UsageError
from packager.core.image import stated_time
from packager.core.record import BuildRecord
from packager.core.speculation import Load, SpeculationReport
from packager.core.startup import StartupReport
from packager.core.units import decimal

SPECULATION = "draft measure"  # workload's name in results of `packager draft measure`


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A report and the file that it is from."""

    name: str
    report: BenchReport


def different_workloads(first: Named, other: Named, what: str) -> UsageError:
    """Return an error: reports of different requests, whose figures are not comparable."""
    return UsageError(
        f"{first.name!r} and {other.name!r} sent different requests: {what}",
        hint="measure with the same requests, or show them side by side without comparing: "
        "add --mixed",
        code="DifferentWorkloads",
    )


def merge(reports: Sequence[Named], *, mixed: bool = False) -> BenchReport:
    """Return one report with the variants of all; a single one stays as it is.

    `mixed` allows different requests, without a comparison.  Raises `UsageError`
    without it.
    """
    if len(reports) == 1:
        return reports[0].report
    measured = [one for one in reports if _has_loads(one.report)] or list(reports)
    first = measured[0]
    notes = [note for one in reports for note in one.report.notes]
    same = True
    for other in measured[1:]:
        if what := workload_difference(first.report.workload, other.report.workload):
            if not mixed:
                raise different_workloads(first, other, what)
            same = False
            notes.insert(0, f"{first.name} and {other.name} sent different requests: {what}")
    limits = first.report.limits
    has_limits = all(one.report.limits == limits for one in measured)
    variants = tuple(_renamed(reports, keep_good=has_limits))
    if not has_limits:
        notes.append("limits differ between the benchmarks: none is applied")
    machines = dict.fromkeys(one.report.machine for one in measured if one.report.machine)
    if len(machines) > 1:
        notes.append(f"measured on {len(machines)} different machines")
    if same and len(measured) > 1 and _has_loads(first.report):
        notes.append(
            "measured by turns within each benchmark, and not between them: how much of a "
            "difference between benchmarks is noise is not known"
        )
    times = sorted(one.report.measured for one in measured)
    return BenchReport(
        packager_version=", ".join(dict.fromkeys(one.report.packager_version for one in reports)),
        measured=times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}",
        machine="; ".join(machines),
        workload=first.report.workload if same else BenchWorkload(name=MIXED),
        limits=limits if has_limits else Limits(),
        rounds=min(one.report.rounds for one in measured),
        variants=variants,
        compared=tuple(_compared(reports, variants)) if same else (),
        pareto=pareto(variants) if same else (),
        notes=tuple(dict.fromkeys((*notes, *(bill_notes(variants) if same else ())))),
        incomplete="; ".join(
            f"{one.name}: {one.report.incomplete}" for one in reports if one.report.incomplete
        ),
    )


def report_of_record(record: BuildRecord) -> BenchReport:
    """Return what was measured of a build: its benchmark, else its draft, and its cold starts."""
    found = _loads_of_record(record)
    if record.starts is None:
        return found
    variants, machine = with_starts(found.variants, record), found.machine
    if not _has_loads(found):
        return found.model_copy(
            update={
                "variants": variants,
                "measured": record.starts.measured,
                "machine": record.starts.machine,
                "rounds": record.starts.rounds,
            }
        )
    notes = [*found.notes]
    if record.starts.machine != machine:
        notes.append(f"cold starts were measured elsewhere: {record.starts.machine or 'not told'}")
    return found.model_copy(update={"variants": variants, "notes": tuple(notes)})


def report_of_starts(starts: StartupReport) -> BenchReport:
    """Return cold starts as a benchmark without loads."""
    return BenchReport(
        packager_version=starts.packager_version,
        measured=starts.measured,
        machine=starts.machine,
        workload=BenchWorkload(name=""),
        rounds=starts.rounds,
        variants=tuple(
            BenchVariant(name=one.name, setup=one.setup, started=one, failure=one.failure)
            for one in starts.startups
        ),
        notes=starts.notes,
        command=starts.command,
        incomplete=starts.incomplete,
    )


def with_starts(
    variants: tuple[BenchVariant, ...], record: BuildRecord
) -> tuple[BenchVariant, ...]:
    """Return variants with the starts of a record's image: one of them is it, or it is added."""
    started = next(iter(record.starts.startups), None) if record.starts else None
    if started is None:
        return variants
    names = _digests(record)
    own = [one for one in variants if one.setup.digest in names]
    # Of a server with and without its draft, the record's image is the one that has it.
    place = variants.index(own[-1]) if own else len(variants)
    found = own[-1] if own else BenchVariant(name=started.name, setup=_setup_of(record))
    known = found.model_copy(update={"started": started})
    return (*variants[:place], known, *variants[place + 1 :])


def _loads_of_record(record: BuildRecord) -> BenchReport:
    built = _build_note(record)
    if record.bench is not None:
        variants = tuple(
            variant.model_copy(update={"quality": record.quality})
            if variant.quality is None and variant.setup.digest in _digests(record)
            else variant
            for variant in record.bench.variants
        )
        notes = (*record.bench.notes, built)
        return record.bench.model_copy(update={"variants": variants, "notes": notes})
    report = record.speculation
    setup = _setup_of(record)
    if report is None:
        variants = (BenchVariant(name=record.served_name, setup=setup, quality=record.quality),)
    else:
        variants = tuple(_measured_draft(report, setup, record))
    return BenchReport(
        packager_version=record.packager_version,
        measured=report.measured if report else stated_time(record.created),
        workload=_workload_of(report) if report else BenchWorkload(name=""),
        variants=variants,
        compared=compare(variants),
        pareto=pareto(variants) if report else (),
        notes=(built,),
    )


def workload_difference(one: BenchWorkload, other: BenchWorkload) -> str:
    """Return what differs between two workloads; their seeds may."""
    pairs = (
        ("workload", one.name, other.name),
        ("tokens in", one.input_tokens, other.input_tokens),
        ("tokens out", one.output_tokens, other.output_tokens),
        ("data", one.data_digest or one.data, other.data_digest or other.data),
        ("adapters", one.adapters, other.adapters),
        ("endpoint", one.endpoint, other.endpoint),
    )
    return ", ".join(
        f"{what} {_shown(mine)} and {_shown(theirs)}"
        for what, mine, theirs in pairs
        if mine != theirs
    )


def _shown(value: str | float | None) -> str:
    if value is None or value == "":
        return "unknown"
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _has_loads(report: BenchReport) -> bool:
    return any(variant.loads for variant in report.variants)


def _renamed(reports: Sequence[Named], *, keep_good: bool) -> Iterator[BenchVariant]:
    """Yield all variants; a name that several files have gets the file's."""
    names = [variant.name for one in reports for variant in one.report.variants]
    taken: dict[str, int] = {}
    for one in reports:
        for variant in one.report.variants:
            name = variant.name
            if names.count(name) > 1:
                name = f"{name} ({one.name})"
            taken[name] = taken.get(name, 0) + 1
            if taken[name] > 1:
                name = f"{name} {taken[name]}"
            loads = variant.loads
            if not keep_good:
                loads = tuple(load.model_copy(update={"good": None}) for load in loads)
            yield variant.model_copy(update={"name": name, "loads": loads})


def _compared(reports: Sequence[Named], variants: Sequence[BenchVariant]) -> Iterator[Compared]:
    """Yield comparisons with the first variant; intervals only within its own benchmark."""
    together = {variant.name for variant in variants[: len(reports[0].report.variants)]}
    for one in compare(variants):
        if one.variant in together:
            yield one
        else:
            yield one.model_copy(update={"low": None, "high": None, "is_noise": None})


def _digests(record: BuildRecord) -> tuple[str, ...]:
    return tuple(filter(None, (*record.digests, record.config_digest)))


def _setup_of(record: BuildRecord) -> BenchSetup:
    return BenchSetup(
        model=record.served_name,
        instance=record.request.instance,
        tp_degree=record.tp_degree,
        quantization=record.request.quantize or "none",
        draft=record.draft.kind if record.draft else "none",
        engine=f"{record.engine} {record.engine_version}".strip(),
        digest=record.digest,
    )


def _build_note(record: BuildRecord) -> str:
    size = decimal(sum(layer.size for layer in record.layers))
    when = f" {created}" if (created := stated_time(record.created)) else ""
    return f"{record.served_name}: built{when} in {record.seconds:,.0f} s, {size}"


def _workload_of(report: SpeculationReport) -> BenchWorkload:
    return BenchWorkload(
        name=SPECULATION,
        output_tokens=report.max_tokens,
        data=report.data,
        data_digest=report.data_digest,
        seed=report.seed,
    )


def _measured_draft(
    report: SpeculationReport, setup: BenchSetup, record: BuildRecord
) -> Iterator[BenchVariant]:
    """Yield the server without its draft, where it was measured, then the one with it."""
    plain = [(speed.concurrency, speed.plain) for speed in report.speeds if speed.plain]
    if plain:
        yield BenchVariant(
            name=report.plain,
            setup=setup.model_copy(update={"draft": "none"}),
            loads=tuple(_load_of(concurrency, load) for concurrency, load in plain),
            quality=record.quality,
        )
    yield BenchVariant(
        name=report.server,
        setup=setup,
        loads=tuple(
            _load_of(speed.concurrency, speed.speculative).model_copy(
                update={"acceptance": report.acceptance}
            )
            for speed in report.speeds
        ),
        quality=record.quality,
    )


def _load_of(concurrency: int, load: Load) -> BenchLoad:
    metrics = {
        "output_token_throughput": Metric(unit="tokens/sec", avg=load.tokens_per_second),
        "request_throughput": Metric(
            unit="requests/sec",
            avg=(load.requests - load.failed) / load.seconds if load.seconds else 0.0,
        ),
    }
    if load.ttft_p50_s is not None:
        metrics["time_to_first_token"] = _times(load.ttft_p50_s)
    if load.tpot_p50_s is not None:
        metrics["inter_token_latency"] = _times(load.tpot_p50_s, load.tpot_p95_s)
        rate = 1 / load.tpot_p50_s if load.tpot_p50_s else 0.0
        metrics["output_token_throughput_per_user"] = Metric(
            unit="tokens/sec/user", avg=rate, p50=rate
        )
    return BenchLoad(
        concurrency=concurrency,
        requests=load.requests,
        answered=load.requests - load.failed,
        seconds=load.seconds,
        metrics=metrics,
    )


def _times(p50_s: float, p95_s: float | None = None) -> Metric:
    """Return a time of which only the median is known; it is used as the mean, too."""
    p95 = 1e3 * p95_s if p95_s is not None else None
    return Metric(unit="ms", avg=1e3 * p50_s, p50=1e3 * p50_s, p95=p95)
