"""Let AIPerf's own classes read a benchmark's files, and compute its metrics of the same requests.

Run with AIPerf 0.13 on the path and a folder as argument.  `profile_export_aiperf.json` and
`profile_export.jsonl` of it are validated; of `requests.json` the metrics are computed, twice:
with the server's count of tokens, and with the client's beside it.  Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiperf.metrics.types
import numpy
from aiperf.common.enums import MetricFlags, MetricType
from aiperf.common.exceptions import NoMetricValue
from aiperf.common.models import ErrorDetails
from aiperf.common.models.export_models import JsonExportData, JsonMetricResult
from aiperf.common.models.record_models import (
    MetricRecordInfo,
    MetricResult,
    ParsedResponse,
    ParsedResponseRecord,
    ReasoningResponseData,
    RequestRecord,
    TextResponseData,
    TokenCounts,
)
from aiperf.common.models.usage_models import Usage
from aiperf.config.config import BenchmarkConfig
from aiperf.metrics.display_units import to_display_unit
from aiperf.metrics.metric_dicts import (
    MetricRecordDict,
    MetricResultsDict,
    metric_result_from_array,
)
from aiperf.metrics.metric_registry import MetricRegistry
from aiperf.metrics.types.good_request_count_metric import GoodRequestCountMetric

assert aiperf.metrics.types  # importing it registers every metric
OTHER_WORKLOADS = (
    MetricFlags.SUPPORTS_AUDIO_ONLY,
    MetricFlags.SUPPORTS_IMAGE_ONLY,
    MetricFlags.PRODUCES_VIDEO_ONLY,
    MetricFlags.HTTP_TRACE_ONLY,
    MetricFlags.FIXED_SCHEDULE_ONLY,
)
HIDDEN = MetricFlags.INTERNAL, MetricFlags.EXPERIMENTAL  # from AIPerf's own files
PER_REQUEST = "usage_prompt_tokens_diff_pct", "usage_completion_tokens_diff_pct"


def main(folder: Path) -> None:
    """Print what was read, and AIPerf's metrics."""
    sys.stdout.write(json.dumps({**read(folder), "metrics": computed(folder)}))


def read(folder: Path) -> dict[str, Any]:
    summary = (folder / "profile_export_aiperf.json").read_bytes()
    data = JsonExportData.model_validate_json(summary, strict=True)
    own = json.loads(summary)
    tags = [tag for tag, value in own.items() if isinstance(value, dict) and "unit" in value]
    for tag in tags:
        JsonMetricResult.model_validate(own[tag], strict=True)
    lines = (folder / "profile_export.jsonl").read_bytes().splitlines()
    records = [MetricRecordInfo.model_validate_json(line, strict=True) for line in lines]
    config = data.input_config
    assert isinstance(config, BenchmarkConfig)
    units = {}
    for tag in tags:
        known = MetricRegistry.get_class_or_none(tag)
        if known is not None:
            units[tag] = str((known.display_unit or known.unit).value)
    return {
        "schema": JsonExportData.SCHEMA_VERSION,
        "units": units,
        "unknown": sorted(set(tags) - set(units)),
        "phase": config.phases[0].model_dump(mode="json", include={"type", "concurrency", "rate"}),
        "errors": sum(one.count for one in data.error_summary or ()),
        "records": len(records),
        "failed_records": sum(one.error is not None for one in records),
        "left_over": sorted(
            {key for one in records for key in (one.model_extra or {})}
            | {key for one in records for key in (one.metadata.model_extra or {})}
        ),
    }


def computed(folder: Path) -> dict[str, dict[str, Any]]:
    given = json.loads((folder / "requests.json").read_bytes())
    GoodRequestCountMetric.set_slos(given["slos"])
    by_server = metrics_of(given["requests"], "server")
    by_client = metrics_of(given["requests"], "client")
    for tag in (*PER_REQUEST, "usage_discrepancy_count"):
        by_server.pop(tag, None)
        if tag in by_client:
            by_server[tag] = by_client[tag]
    return by_server


def metrics_of(requests: list[dict[str, Any]], counter: str) -> dict[str, dict[str, Any]]:
    order = [
        tag
        for tag in MetricRegistry.create_dependency_order()
        if not any(MetricRegistry.get_class(tag).has_flags(flag) for flag in OTHER_WORKLOADS)
    ]
    values: dict[str, list[Any]] = {}
    for request in requests:
        record = record_of(request, counter)
        record.create_error_from_invalid()
        for tag, value in parsed(record, order).items():
            values.setdefault(tag, []).append(value)
    results: dict[str, MetricResult] = {}
    scalars = MetricResultsDict()
    for tag in order:
        kind = MetricRegistry.get_class(tag)
        if tag in values:
            results[tag] = summarized(kind, values[tag], scalars)
        elif kind.type == MetricType.DERIVED:
            try:
                scalars[tag] = kind().derive_value(scalars)
            except (NoMetricValue, ValueError):
                continue
            results[tag] = MetricResult(
                tag=tag, header=kind.header, unit=str(kind.unit), avg=scalars[tag], count=1
            )
    return {
        tag: to_display_unit(result, MetricRegistry)
        .to_json_result()
        .model_dump(mode="json", exclude_none=True)
        for tag, result in results.items()
        if not any(MetricRegistry.get_class(tag).has_flags(flag) for flag in HIDDEN)
    }


def parsed(record: ParsedResponseRecord, order: list[str]) -> dict[str, Any]:
    """Return the metrics of one request, as AIPerf's record processor gathers them."""
    found = MetricRecordDict()
    for tag in order:
        kind = MetricRegistry.get_class(tag)
        if kind.type == MetricType.DERIVED:
            continue
        if kind.has_flags(MetricFlags.ERROR_ONLY) == record.valid:
            continue
        try:
            found[tag] = kind().parse_record(record, found)
        except NoMetricValue:
            continue
    return found


def summarized(kind: Any, values: list[Any], scalars: MetricResultsDict) -> MetricResult:
    if kind.type == MetricType.AGGREGATE:
        fold = {"min": min, "max": max}.get(str(getattr(kind, "aggregation_kind", "sum")), sum)
        scalars[kind.tag] = fold(values)
        return MetricResult(
            tag=kind.tag, header=kind.header, unit=str(kind.unit), avg=scalars[kind.tag], count=1
        )
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    scalars[kind.tag] = sum(flat)
    return metric_result_from_array(
        kind.tag, kind.header, str(kind.unit), numpy.array(flat, dtype=float), float(sum(flat))
    )


def record_of(request: dict[str, Any], counter: str) -> ParsedResponseRecord:
    """Return AIPerf's record of a request that was streamed."""
    counts = request[counter] or request["client" if counter == "server" else "server"] or {}
    server = request["server"] or {}
    thoughts = server.get("reasoning")
    output = counts.get("output")
    responses = [
        ParsedResponse(
            perf_ns=chunk["ns"],
            data=ReasoningResponseData(content=None, reasoning="x")
            if chunk["is_reasoning"]
            else TextResponseData(text="x"),
        )
        for chunk in request["chunks"]
    ]
    usage = {
        "prompt_tokens": server.get("input"),
        "completion_tokens": server.get("output"),
        "completion_tokens_details": {"reasoning_tokens": thoughts},
    }
    if server:
        usage["total_tokens"] = server["input"] + server["output"]
        responses.append(
            ParsedResponse(
                perf_ns=request["end_ns"],
                usage=Usage({key: value for key, value in usage.items() if value is not None}),
            )
        )
    error = ErrorDetails(type="x", message="x") if request["failed"] else None
    return ParsedResponseRecord(
        request=RequestRecord.model_construct(
            timestamp_ns=request["sent_ns"],
            start_perf_ns=request["sent_ns"],
            end_perf_ns=request["end_ns"],
            clock_offset_ns=None,
            responses=[],
            error=error,
            request_info=SimpleNamespace(max_tokens=request["asked"]),
        ),
        responses=responses,
        token_counts=TokenCounts(
            input=counts.get("input"),
            output=None if output is None else output - (thoughts or 0),
            reasoning=thoughts,
            first_content_chunk_tokens=request["first"],
        ),
    )


main(Path(sys.argv[1]))
