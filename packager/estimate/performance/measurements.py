"""Benchmark results from files, as predictions are fitted to them.

A text such as `TPOT 17.9 ms at 16, 8xB200` states one point (`measured_text`).  Files have one of
seven forms, recognized by their keys:

    variants              `packager bench --output`
    startups              `packager bench --startup --output`
    points                our own, written by hand; see docs/performance.md
    speeds                `packager draft measure --output`
    request, bench        a build record with such figures
    request, speculation  the same, of a draft
    inter_token_latency   `profile_export_aiperf.json` of AIPerf, schema 1.0 to 1.5
    mean_tpot_ms          `vllm bench serve --save-result`, and `sglang.bench_serving
                          --output-file`, which writes one line a run

A metric of AIPerf carries its unit, which is read and never inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from packager.core.bench import BenchLoad, BenchReport, BenchVariant
from packager.core.bench_setup import BenchSetup
from packager.core.documents import NotStrict, field, parse_object, shorten
from packager.core.errors import UsageError
from packager.core.files.user_files import read_user_file
from packager.core.measurement import MeasuredLoad, MeasuredRun, MeasuredSetup
from packager.core.startup import StartupReport
from packager.core.validation import first_fault
from packager.estimate.performance.measured_figures import (
    MAX_CONCURRENCY,
    read_average,
    read_concurrency,
    read_metric,
    read_milliseconds,
    read_optional,
    read_positive,
    read_seconds,
)
from packager.estimate.performance.measured_text import FORM as TEXT_FORM
from packager.estimate.performance.measured_text import is_point, parse_point
from packager.estimate.performance.vllm_runs import TOTALS, read_vllm_run

MAX_BYTES = 16 * 1024 * 1024  # a benchmark's own file has much besides
MAX_LOADS = 10_000
FORM = '{"points": [{"concurrency": 8, "tpot_ms": 42.7}]}'
HINT = (
    "name what `packager bench --output`, AIPerf, `vllm bench serve --save-result` or "
    f"`sglang.bench_serving --output-file` wrote, or {FORM}, or write '{TEXT_FORM}'"
)
PER_SECOND = frozenset({"tokens/sec", "tokens/s", "tok/s"})


def no_measurements(path: Path, reason: str, hint: str = HINT) -> UsageError:
    """Return an error: a file without measurements to fit a prediction to."""
    return UsageError(
        f"{shorten(str(path), 200)} holds no measurements: {reason}",
        hint=hint,
        code="NoMeasurements",
    )


def load_measurements(path: Path) -> MeasuredRun:
    """Read a file of results, or the text of one point.

    Raises `NotFound`, or `UsageError` for an invalid one.
    """
    if is_point(str(path)):
        return parse_point(str(path))
    data = read_user_file(path, what="the measurements", hint=HINT, max_bytes=MAX_BYTES)
    try:
        run = _joined([_run_of(path, part) for part in _documents(data)])
    except NotStrict as error:
        raise no_measurements(path, str(error)) from error
    except ValidationError as error:
        raise no_measurements(path, first_fault(error)) from error
    if not run.loads and not run.plain_loads and run.started is None:
        raise no_measurements(path, "no load in it was answered")
    return run


def _documents(data: bytes) -> list[bytes]:
    """Return the lines of a file that has one object in each, else the file."""
    lines = [line for line in data.splitlines() if line.strip()]
    is_each = all(line.startswith(b"{") and line.rstrip().endswith(b"}") for line in lines)
    return lines if is_each and 1 < len(lines) <= MAX_LOADS else [data]


def _run_of(path: Path, data: bytes) -> MeasuredRun:
    document = parse_object(data, max_bytes=MAX_BYTES, allow_infinity=True)
    read = _reader(document)
    if read is None:
        raise NotStrict(f"it has none of the keys {', '.join(map(repr, READERS))}")
    return read(path, document)


def _joined(runs: list[MeasuredRun]) -> MeasuredRun:
    """Return the runs of one server as one; those of another set-up stay apart."""
    first = runs[0]
    same = [run for run in runs if run.setup == first.setup]
    lengths = [run.acceptance_length for run in same if run.acceptance_length]
    return replace(
        first,
        loads=tuple(load for run in same for load in run.loads),
        plain_loads=tuple(load for run in same for load in run.plain_loads),
        acceptance_length=fmean(lengths) if lengths else None,
        others=(*first.others, *(run for run in runs if run.setup != first.setup)),
    )


class _Closed(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True, allow_inf_nan=False)


class _Point(_Closed):
    concurrency: PositiveInt = Field(le=MAX_CONCURRENCY)
    tpot_ms: PositiveFloat
    ttft_ms: PositiveFloat | None = None
    output_tokens_s: PositiveFloat | None = None
    input_tokens: PositiveFloat | None = None
    output_tokens: PositiveFloat | None = None


class _Setup(_Closed):
    model: str = ""
    instance: str = ""
    tp_degree: PositiveInt | None = None
    quantization: str | None = None
    draft: str | None = None


class _Results(_Closed):
    points: tuple[_Point, ...] = Field(min_length=1, max_length=MAX_LOADS)
    setup: _Setup = Field(default_factory=_Setup)


def _of_points(path: Path, document: Mapping[str, Any]) -> MeasuredRun:
    found = _Results.model_validate(
        {name: document[name] for name in ("points", "setup") if name in document}
    )
    return MeasuredRun(
        source=str(path),
        setup=MeasuredSetup(**found.setup.model_dump()),
        loads=tuple(
            MeasuredLoad(
                concurrency=point.concurrency,
                tpot_s=point.tpot_ms / 1e3,
                ttft_s=None if point.ttft_ms is None else point.ttft_ms / 1e3,
                output_tokens_s=point.output_tokens_s,
                input_tokens=point.input_tokens,
                output_tokens=point.output_tokens,
            )
            for point in found.points
        ),
    )


def _of_speeds(
    path: Path, document: Mapping[str, Any], setup: MeasuredSetup | None = None
) -> MeasuredRun:
    """Read a report of `draft measure`; it names an image or an address, and no set-up."""
    speeds = field(document, "speeds", list)
    if len(speeds) > MAX_LOADS:
        raise NotStrict(f"it has {len(speeds)} loads, more than {MAX_LOADS}")
    acceptance = document.get("acceptance")
    length = acceptance.get("length") if isinstance(acceptance, dict) else None
    return MeasuredRun(
        source=str(path),
        setup=setup or MeasuredSetup(),
        loads=tuple(_loads_of(speeds, "speculative")),
        plain_loads=tuple(_loads_of(speeds, "plain")),
        acceptance_length=None if length is None else read_positive(length, "acceptance.length"),
    )


def _loads_of(speeds: list[Any], name: str) -> Iterable[MeasuredLoad]:
    for number, speed in enumerate(speeds):
        load = field(speed, name, dict, f"speeds[{number}]") if _has(speed, name) else None
        if load is None or load.get("tpot_p50_s") is None:  # one token an answer has no TPOT
            continue
        answered = field(load, "requests", int, name) - field(load, "failed", int, name)
        yield MeasuredLoad(
            concurrency=read_concurrency(speed.get("concurrency"), "concurrency"),
            tpot_s=read_positive(load["tpot_p50_s"], "tpot_p50_s"),
            ttft_s=read_optional(load.get("ttft_p50_s"), "ttft_p50_s"),
            output_tokens_s=read_optional(load.get("tokens_per_second"), "tokens_per_second"),
            output_tokens=field(load, "output_tokens", int, name) / max(1, answered),
        )


def _of_bench(
    path: Path, document: Mapping[str, Any], setup: MeasuredSetup | None = None
) -> MeasuredRun:
    """Read a report of `bench`; of several servers, the one of the plan is chosen later."""
    report = BenchReport.model_validate(document)
    runs = [_of_variant(path, one, setup) for one in report.variants]
    runs = [run for run in runs if run.loads or run.started]
    if not runs:
        raise NotStrict("no load with a concurrency was answered")
    return replace(runs[0], others=tuple(runs[1:]))


def _of_variant(path: Path, variant: BenchVariant, setup: MeasuredSetup | None) -> MeasuredRun:
    lengths = [one.acceptance.length for one in variant.loads if one.acceptance]
    known = [length for length in lengths if length is not None]
    return MeasuredRun(
        source=str(path),
        setup=setup or _setup_of(variant.setup),
        loads=tuple(_of_bench_loads(variant.loads)),
        acceptance_length=fmean(known) if known else None,
        started=variant.started if variant.started and variant.started.phases else None,
    )


def _of_startups(
    path: Path, document: Mapping[str, Any], setup: MeasuredSetup | None = None
) -> MeasuredRun:
    """Read a report of `bench --startup`; skip images that never started."""
    report = StartupReport.model_validate(document)
    runs = [
        MeasuredRun(source=str(path), setup=setup or _setup_of(one.setup), loads=(), started=one)
        for one in report.startups
        if one.phases
    ]
    if not runs:
        raise NotStrict("no image in it gave a first token")
    return replace(runs[0], others=tuple(runs[1:]))


def _setup_of(stated: BenchSetup) -> MeasuredSetup:
    return MeasuredSetup(
        model=stated.model,
        instance=stated.instance,
        tp_degree=stated.tp_degree,
        quantization=stated.quantization,
        draft=stated.draft,
    )


def _of_bench_loads(loads: Iterable[BenchLoad]) -> Iterable[MeasuredLoad]:
    for load in loads:
        tpot = load.metrics.get("inter_token_latency")
        if load.rate is not None or load.concurrency is None or not (tpot and tpot.avg):
            continue  # at a rate it is only a limit; answers in one piece have no time per token
        means = {name: metric.avg for name, metric in load.metrics.items()}
        yield MeasuredLoad(
            concurrency=read_concurrency(load.concurrency, "concurrency"),
            tpot_s=read_positive(tpot.avg, "inter_token_latency.avg") / 1e3,
            ttft_s=read_milliseconds(means.get("time_to_first_token"), "time_to_first_token"),
            output_tokens_s=read_optional(
                means.get("output_token_throughput"), "output_token_throughput"
            ),
            input_tokens=read_optional(means.get("input_sequence_length"), "input_sequence_length"),
            output_tokens=read_optional(
                means.get("output_sequence_length"), "output_sequence_length"
            ),
        )


def _of_record(path: Path, document: Mapping[str, Any]) -> MeasuredRun:
    """Read the figures of a build record, which says what the image is."""
    if not any(isinstance(document.get(name), dict) for name in _IN_RECORDS):
        raise NotStrict(
            "it is a build record, and `packager bench` put no figures in it, nor did "
            "`packager draft measure`"
        )
    request = field(document, "request", dict)
    model = field(document, "model", dict)
    # Up to 0.2 every directory has the name "model" in a record.
    is_nameless = model.get("source") == "local" and model.get("name") == "model"
    draft = document.get("draft")
    setup = MeasuredSetup(
        model=field(*((request, "model") if is_nameless else (model, "name")), str),
        instance=field(request, "instance", str, "request"),
        tp_degree=field(document, "tp_degree", int),
        quantization=request.get("quantize") or None,
        draft=field(draft, "kind", str, "draft") if isinstance(draft, dict) else "none",
    )
    started = None
    if isinstance(document.get("starts"), dict):
        run = _of_startups(path, document["starts"], setup)
        if not any(isinstance(document.get(name), dict) for name in ("bench", "speculation")):
            return run
        started = run.started
    if isinstance(document.get("bench"), dict):
        return replace(_of_bench(path, document["bench"], setup), started=started)
    return replace(_of_speeds(path, document["speculation"], setup), started=started)


def _of_aiperf(path: Path, document: Mapping[str, Any]) -> MeasuredRun:
    """Read AIPerf's summary of one run: one concurrency. Ours states its whole setup beside it."""
    if document.get("was_cancelled") is True:
        raise NotStrict("the benchmark was cancelled before its end")
    config = document.get("input_config")
    config = config if isinstance(config, dict) else {}
    throughput = read_metric(document, "output_token_throughput")
    if throughput and throughput[1] not in PER_SECOND:
        raise NotStrict(f"output_token_throughput has the unit {shorten(throughput[1])}")
    load = MeasuredLoad(
        concurrency=read_concurrency(_aiperf_concurrency(document, config), "concurrency"),
        tpot_s=read_positive(read_seconds(document, "inter_token_latency"), "inter_token_latency"),
        ttft_s=read_optional(read_seconds(document, "time_to_first_token"), "time_to_first_token"),
        output_tokens_s=throughput[0] if throughput else None,
        input_tokens=read_average(document, "input_sequence_length"),
        output_tokens=read_average(document, "output_sequence_length"),
    )
    own = document.get("packager")
    stated = own.get("setup") if isinstance(own, dict) else None
    return MeasuredRun(
        source=str(path),
        setup=MeasuredSetup(model=_aiperf_model(config))
        if stated is None
        else _setup_of(BenchSetup.model_validate(stated)),
        loads=(load,),
        acceptance_length=read_average(document, "spec_decode_token_weighted_acceptance_length"),
    )


def _aiperf_model(config: Mapping[str, Any]) -> str:
    """Return the model's name, from either form of the input; "" where there is none."""
    endpoint, models = config.get("endpoint"), config.get("models")
    names = endpoint.get("model_names") if isinstance(endpoint, dict) else None
    items = models.get("items") if isinstance(models, dict) else None
    found: list[Any] = [*(names if isinstance(names, list) else [])]
    if isinstance(items, list):
        found += [item.get("name") for item in items if isinstance(item, dict)]
    return found[0] if found and isinstance(found[0], str) else ""


def _aiperf_concurrency(document: Mapping[str, Any], config: Mapping[str, Any]) -> object:
    """Return the concurrency of the phase that is reported, from either form of the input."""
    loadgen = config.get("loadgen")
    if isinstance(loadgen, dict) and loadgen.get("concurrency") is not None:
        return None if loadgen.get("request_rate") else loadgen["concurrency"]
    phases = config.get("phases")
    for phase in phases if isinstance(phases, list) else ():
        if isinstance(phase, dict) and not phase.get("exclude_from_results"):
            is_closed = phase.get("type", "concurrency") == "concurrency"
            return phase.get("concurrency") if is_closed else None
    info = document.get("run_info")
    values = info.get("variation_values") if isinstance(info, dict) else None
    return values.get("phases.profiling.concurrency") if isinstance(values, dict) else None


def _of_vllm(path: Path, document: Mapping[str, Any]) -> MeasuredRun:
    """Read what `vllm bench serve` or `sglang.bench_serving` saved: one concurrency."""
    run = read_vllm_run(document)
    if run.completed < 1:
        raise NotStrict("no request was completed")
    if run.concurrency is None:
        raise NotStrict("max_concurrency is missing: measure with --max-concurrency N")
    if not run.is_closed:
        raise NotStrict("it was measured at a request_rate: max_concurrency is only a limit then")
    figures = run.figures
    inputs, outputs = (field(document, name, int) / run.completed for name in TOTALS)
    load = MeasuredLoad(
        concurrency=read_concurrency(run.concurrency, "max_concurrency"),
        tpot_s=read_positive(figures.get("mean_tpot_ms"), "mean_tpot_ms") / 1e3,
        ttft_s=read_milliseconds(figures.get("mean_ttft_ms"), "mean_ttft_ms"),
        output_tokens_s=read_optional(figures.get("output_throughput"), "output_throughput"),
        input_tokens=inputs,
        output_tokens=outputs,
    )
    return MeasuredRun(
        source=str(path),
        setup=MeasuredSetup(model=run.model),
        loads=(load,),
        acceptance_length=read_optional(figures.get("accept_length"), "accept_length"),
    )


_IN_RECORDS = ("bench", "speculation", "starts")

READERS: Mapping[str, Callable[[Path, Mapping[str, Any]], MeasuredRun]] = {
    "variants": _of_bench,
    "startups": _of_startups,
    "points": _of_points,
    "speeds": _of_speeds,
    "request": _of_record,
    "inter_token_latency": _of_aiperf,
    "mean_tpot_ms": _of_vllm,
}


def _reader(
    document: Mapping[str, Any],
) -> Callable[[Path, Mapping[str, Any]], MeasuredRun] | None:
    return next((read for key, read in READERS.items() if key in document), None)


def _has(document: object, name: str) -> bool:
    return isinstance(document, dict) and document.get(name) is not None
