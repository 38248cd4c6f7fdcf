"""AIPerf's summary of one load, `profile_export_aiperf.json`, as a report with one variant.

Metrics have the same names and units on both sides, so that they are taken as they are; what has
another form than a metric is passed over.  Exports of schema 1.0 to 1.5 are read, and SageMaker's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from packager.addons.bench.request_metrics import LIMITED, UNITS
from packager.core.bench import (
    BenchLoad,
    BenchReport,
    BenchVariant,
    BenchWorkload,
    Limits,
    Metric,
)
from packager.core.bench_setup import BenchSetup
from packager.core.documents import NotStrict, shorten
from packager.core.text import escape
from packager.core.validation import first_fault

_STATISTICS = tuple(Metric.model_fields)
_UNITS = {
    **UNITS,
    "request_throughput": "requests/sec",
    "output_token_throughput": "tokens/sec",
    "benchmark_duration": "sec",
}
_MOST = 1024  # requests at a time


def is_aiperf(document: Mapping[str, Any]) -> bool:
    """Check that a document is a summary of AIPerf's."""
    return "aiperf_version" in document or (
        "input_config" in document and isinstance(document.get("request_latency"), dict)
    )


def report_of_aiperf(document: Mapping[str, Any], name: str) -> BenchReport:
    """Return the report; raise `NotStrict` if the document is not a complete summary.

    `name` is that of the variant where the document names no server.
    """
    own = _object(document.get("packager"))
    config = _object(document.get("input_config"))
    metrics = dict(_metrics(document))
    answered = _count(metrics, "request_count")
    if answered is None:
        raise NotStrict("request_count is missing")
    failed = _count(metrics, "error_request_count") or 0
    duration = metrics.get("benchmark_duration")
    concurrency, rate = _level(document, config)
    try:
        load = BenchLoad(
            concurrency=concurrency,
            rate=rate,
            requests=answered + failed,
            answered=answered,
            seconds=duration.avg if duration else 0.0,
            started=_text(document.get("start_time")),
            ended=_text(document.get("end_time")),
            metrics=metrics,
            interrupted="the benchmark was cancelled" if document.get("was_cancelled") else "",
            notes=tuple(_text(one) for one in own.get("notes") or () if isinstance(one, str)),
        )
        setup = BenchSetup.model_validate(own.get("setup") or {"model": _model(config)})
        limits = Limits.model_validate(_limits(config))
    except (ValidationError, TypeError) as error:
        why = first_fault(error) if isinstance(error, ValidationError) else str(error)
        raise NotStrict(why) from None
    return BenchReport(
        packager_version=_text(document.get("aiperf_version")),
        measured=load.started,
        machine=_text(own.get("machine")),
        workload=BenchWorkload(name=_workload(config)),
        limits=limits,
        variants=(
            BenchVariant(name=_text(own.get("variant")) or name, setup=setup, loads=(load,)),
        ),
    )


def _metrics(document: Mapping[str, Any]) -> Iterator[tuple[str, Metric]]:
    for tag, found in document.items():
        if not (isinstance(found, dict) and "unit" in found and "avg" in found):
            continue
        known = {key: found[key] for key in _STATISTICS if found.get(key) is not None}
        if found["unit"] != _UNITS.get(tag, found["unit"]):
            raise NotStrict(
                f"the unit of {tag} is {shorten(found['unit'], 40)}, expected {_UNITS[tag]!r}"
            )
        try:
            yield escape(tag), Metric.model_validate(known, strict=True)
        except ValidationError as error:
            raise NotStrict(f"the metric {shorten(tag, 80)}: {first_fault(error)}") from None


def _count(metrics: Mapping[str, Metric], tag: str) -> int | None:
    found = metrics.get(tag)
    if found is None:
        return None
    if found.avg < 0 or found.avg != int(found.avg):
        raise NotStrict(f"{tag} is {found.avg:g}, expected a count")
    return int(found.avg)


def _level(
    document: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[int | None, float | None]:
    """Return requests at a time and a second, from either form of the input."""
    loadgen = _object(config.get("loadgen"))
    if loadgen:
        return _level_of(loadgen.get("concurrency"), loadgen.get("request_rate"))
    phases = config.get("phases")
    for phase in phases if isinstance(phases, list) else ():
        if isinstance(phase, dict) and not phase.get("exclude_from_results"):
            return _level_of(phase.get("concurrency"), phase.get("rate"))
    values = _object(_object(document.get("run_info")).get("variation_values"))
    return _level_of(
        values.get("phases.profiling.concurrency"), values.get("phases.profiling.rate")
    )


def _level_of(concurrency: object, rate: object) -> tuple[int | None, float | None]:
    is_rate = isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0
    is_count = isinstance(concurrency, int) and not isinstance(concurrency, bool)
    if is_count and not 1 <= concurrency <= _MOST:  # type: ignore[operator]
        raise NotStrict(f"concurrency is {shorten(concurrency)}, expected 1 to {_MOST}")
    if not (is_rate or is_count):
        raise NotStrict("it tells neither how many requests ran at a time nor how many a second")
    return (
        concurrency if isinstance(concurrency, int) and is_count else None,
        float(rate) if isinstance(rate, int | float) and is_rate else None,
    )


def _limits(config: Mapping[str, Any]) -> dict[str, Any]:
    slos = _object(config.get("slos"))
    return {name: slos[tag] for name, tag in LIMITED.items() if tag in slos}


def _model(config: Mapping[str, Any]) -> str:
    names = _object(config.get("endpoint")).get("model_names")
    items = _object(config.get("models")).get("items")
    for found in (names, items):
        first = found[0] if isinstance(found, list) and found else None
        if isinstance(first, str) or isinstance(_object(first).get("name"), str):
            return _text(first if isinstance(first, str) else _object(first)["name"])
    return ""


def _workload(config: Mapping[str, Any]) -> str:
    """Return what was sent, in words that differ where requests did."""
    data = config.get("datasets")
    first = _object(data[0] if isinstance(data, list) and data else None)
    prompts = _object(first.get("prompts"))
    lengths = [_object(prompts.get(name)).get("mean") for name in ("isl", "osl")]
    if not any(lengths):
        own = _object(_object(config.get("input")).get("prompt"))
        answers = _object(own.get("output_tokens")).get("mean")
        lengths = [_object(own.get("input_tokens")).get("mean"), answers]
    shown = ["?" if one is None else f"{one:g}" if _is_number(one) else "?" for one in lengths]
    if any(one != "?" for one in shown):
        return f"{shown[0]} tokens in, {shown[1]} out"
    return _text(first.get("path")) or "requests of AIPerf"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return escape(value) if isinstance(value, str) else ""
