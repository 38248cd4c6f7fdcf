"""Results as AIPerf writes them, which its users and SageMaker's SDK read.

`profile_export_aiperf.json` is AIPerf's summary of one load, schema 1.4, and
`profile_export_aiperf.csv` the same as a table, and
`profile_export.jsonl` has one record a request (AIPerf 0.13, `JsonExportData` and
`MetricRecordInfo`).  Tags that AIPerf does not have, and `packager`, stand beside its own: its
models take them.  `aiperf_version` names packager, since AIPerf did not measure.

SageMaker's benchmark jobs leave `output.tar.gz` with such files in it.  Its SDK
(`sagemaker.serve.ai_inference_recommender.result`) takes the first of each name, so that an
archive holds one load.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from packager.addons.bench.csv_export import TABLE, metrics_table
from packager.addons.bench.load.spec import PATHS
from packager.addons.bench.load.values import LoadResult, LoadRun
from packager.addons.bench.request_metrics import (
    CHUNK_LATENCY,
    LIMITED,
    MS,
    TOKENS,
    TTFT,
    UNITS,
    chunk_latencies,
    has_content,
    input_tokens,
    request_metrics,
)
from packager.core.bench import BenchLoad, BenchReport, BenchVariant, BenchWorkload, Metric
from packager.core.text import hide_secrets

SCHEMA = "1.4"
PROFILE, RECORDS = "profile_export_aiperf.json", "profile_export.jsonl"
HISTORY, ARCHIVE = "search_history.json", "output.tar.gz"
SWEEP = "sweep_aggregate/profile_export_aiperf_sweep.json"  # in an archive of several loads
REQUESTS, DOLLARS = "requests", "USD/1M tokens"
LOCAL = "http://localhost:8080"  # AIPerf's configuration requires an address, which images lack
DIGITS = 6  # of milliseconds: clocks count nanoseconds
EMPTY = "the answer has no content"
CONCURRENCY_PATH = "phases.profiling.concurrency"
RATE_PATH = "phases.profiling.rate"
# AIPerf's endpoints of vectors and scores; it has none of pairs and labels, and sends any body raw.
_TYPES = {
    PATHS["embeddings"]: "embeddings",
    PATHS["invocations"]: "embeddings",
    PATHS["rerank"]: "cohere_rankings",
    PATHS["score"]: "raw",
    PATHS["classify"]: "raw",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def profile(report: BenchReport, variant: BenchVariant, load: BenchLoad) -> dict[str, Any]:
    """Return AIPerf's summary of one load."""
    return {
        "schema_version": SCHEMA,
        "aiperf_version": f"packager {report.packager_version}",
        "benchmark_id": _identity(report, variant, load),
        **{
            tag: metric.model_dump(exclude_none=True)
            for tag, metric in {**load.metrics, **_own_metrics(load)}.items()
        },
        **_timestamps(load),
        "input_config": _config(report, variant, load),
        "run_info": _run_info(report, variant, load),
        "was_cancelled": bool(load.interrupted),
        "is_complete": not load.interrupted,
        **({"incomplete_reason": load.interrupted} if load.interrupted else {}),
        "error_summary": _error_summary(load),
        **({"start_time": load.started} if load.started else {}),
        **({"end_time": load.ended} if load.ended else {}),
        "packager": own_fields(report, variant, load),
    }


def records(runs: Sequence[LoadRun]) -> Iterator[dict[str, Any]]:
    """Return AIPerf's record of every request, round after round."""
    for number, run in enumerate(runs):
        start = _nanoseconds(run.started) if run.started else 0
        for result in run.results:
            yield _record(result, start, number)


def load_files(
    report: BenchReport, variant: BenchVariant, load: BenchLoad, runs: Sequence[LoadRun] = ()
) -> dict[str, bytes]:
    """Return the files of one load by name; without its runs the records are left out."""
    files = {
        PROFILE: json_bytes(profile(report, variant, load)),
        TABLE: metrics_table({**load.metrics, **_own_metrics(load)}),
    }
    if runs:
        files[RECORDS] = b"".join(_line(record) for record in records(runs))
    return files


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return a `.tar.gz`; the same files give the same bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(
            fileobj=packed, mode="wb", compresslevel=6, mtime=0, filename=""
        ) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            member.mode = 0o644
            tar.addfile(member, io.BytesIO(files[name]))
    return packed.getvalue()


def aws_files(
    report: BenchReport,
    runs: Mapping[tuple[int, int], Sequence[LoadRun]],
    histories: Mapping[int, Mapping[str, Any]],
) -> dict[str, bytes]:
    """Return an `output.tar.gz` for every load, and for every search, by relative path.

    `runs` are by (variant, load), `histories` (documents of a search) by variant, as they are
    counted in the report.  Each archive stands in a folder of its own: give that to
    `BenchmarkResult.from_s3`.
    """
    found: dict[str, bytes] = {}
    folders = _folders([variant.name for variant in report.variants])
    for at, variant in enumerate(report.variants):
        levels = {}
        for number, load in enumerate(variant.loads):
            files = load_files(report, variant, load, runs.get((at, number), ()))
            levels[level_name(load)] = files
            found[f"{folders[at]}/{level_name(load)}/{ARCHIVE}"] = archive(files)
        if at in histories:
            found[f"{folders[at]}/search/{ARCHIVE}"] = archive(
                {HISTORY: json_bytes(histories[at])}
                | {
                    f"{level}/{name}": content
                    for level, files in levels.items()
                    for name, content in files.items()
                }
            )
    return found


def sweep_document(variant: BenchVariant) -> dict[str, Any]:
    """Return AIPerf's table of several loads of one server.

    A metric is there by its tag, with all of its statistics, as AWS's notebooks read it, and by
    tag and statistic, as AIPerf writes it.
    """
    rows = []
    for load in variant.loads:
        metrics: dict[str, Any] = {}
        for tag, metric in load.metrics.items():
            statistics = metric.model_dump(exclude_none=True)
            metrics[tag] = {**statistics, "mean": metric.avg}
            for name, value in statistics.items():
                if name != "unit":
                    metrics[f"{tag}_{name}"] = {"mean": value, "unit": metric.unit}
        swept = {"request_rate": load.rate} if load.rate else {"concurrency": load.concurrency}
        rows.append({"parameters": swept, "metrics": metrics})
    names = sorted({name for row in rows for name in row["parameters"]})
    values = [
        {"name": name, "values": [row["parameters"].get(name) for row in rows]} for name in names
    ]
    return {
        "aggregation_type": "sweep",
        "metadata": {"sweep_parameters": values, "num_combinations": len(rows)},
        "per_combination_metrics": rows,
    }


def level_name(load: BenchLoad) -> str:
    """Return how hard a server was pressed, for a file's name: `concurrency_8`, `rate_2.5`."""
    return f"rate_{load.rate:g}" if load.rate else f"concurrency_{load.concurrency}"


def json_bytes(document: Mapping[str, Any]) -> bytes:
    return hide_secrets(json.dumps(document, indent=2, allow_nan=False)).encode() + b"\n"


def _own_metrics(load: BenchLoad) -> dict[str, Metric]:
    """Return what SageMaker's reports count and price, and AIPerf does not."""
    failed = load.requests - load.answered
    found = {
        "client_invocations": Metric(unit=REQUESTS, avg=load.requests),
        "client_invocation_errors": Metric(unit=REQUESTS, avg=failed),
        "tokenizer_failed": Metric(unit=REQUESTS, avg=load.tokenizer_failed),
        "empty_inference_response": Metric(unit=REQUESTS, avg=load.empty),
    }
    if load.prices is not None:
        for tag, dollars in (("input", load.prices.input), ("output", load.prices.output)):
            if dollars is not None:
                found[f"cost_per_million_{tag}_tokens"] = Metric(unit=DOLLARS, avg=dollars)
    return found


def own_fields(report: BenchReport, variant: BenchVariant, load: BenchLoad) -> dict[str, Any]:
    """Return what stands below `packager` in another program's form of one load."""
    return {
        "version": report.packager_version,
        "machine": report.machine,
        "variant": variant.name,
        "setup": variant.setup.model_dump(exclude_none=True),
        "seconds": load.seconds,
        "rounds": [one.model_dump(exclude_none=True) for one in load.rounds],
        "notes": list(load.notes),
        "adapters": [one.model_dump(exclude_none=True) for one in load.adapters],
    }


def _config(report: BenchReport, variant: BenchVariant, load: BenchLoad) -> dict[str, Any]:
    """Return the configuration with which AIPerf would send such a load."""
    is_address = variant.name.startswith(("http://", "https://"))
    workload = report.workload
    slos = {
        LIMITED[name]: limit for name, limit in report.limits.model_dump(exclude_none=True).items()
    }
    return {
        "models": {"items": [{"name": variant.setup.model or variant.name}]},
        "endpoint": {
            "urls": [variant.name if is_address else LOCAL],
            "type": _endpoint_type(workload),
            "streaming": TTFT in load.metrics,
        },
        "datasets": [_dataset(workload, load)],
        "phases": [_phase(load)],
        **({"slos": slos} if slos else {}),
    }


def _endpoint_type(workload: BenchWorkload) -> str:
    path = workload.endpoint
    if path in _TYPES:
        return _TYPES[path]
    return "completions" if path.endswith("/completions") and "chat" not in path else "chat"


def _dataset(workload: BenchWorkload, load: BenchLoad) -> dict[str, Any]:
    if workload.data:
        return {"name": "main", "type": "file", "path": workload.data}
    lengths = {"isl": workload.input_tokens, "osl": workload.output_tokens}
    prompts: dict[str, Any] = {key: {"mean": mean} for key, mean in lengths.items() if mean}
    if texts := load.metrics.get("text_count"):
        prompts["batch_size"] = max(1, round(texts.avg))
    return {
        "name": "main",
        "type": "synthetic",
        "entries": max(1, load.requests),
        **({"prompts": prompts} if prompts else {}),
    }


def _phase(load: BenchLoad) -> dict[str, Any]:
    common = {"name": "profiling", "requests": max(1, load.requests)}
    limit = {} if load.concurrency is None else {"concurrency": load.concurrency}
    if load.rate:
        return {**common, "type": load.arrivals, "rate": load.rate, **limit}
    return {**common, "type": "concurrency", **limit}


def _run_info(report: BenchReport, variant: BenchVariant, load: BenchLoad) -> dict[str, Any]:
    swept = {RATE_PATH: load.rate} if load.rate else {CONCURRENCY_PATH: load.concurrency}
    return {
        "benchmark_id": _identity(report, variant, load),
        "random_seed": report.workload.seed,
        "run_label": level_name(load),
        "variation_label": level_name(load),
        "variation_values": swept,
        **({"cli_command": report.command} if report.command else {}),
    }


def _identity(report: BenchReport, variant: BenchVariant, load: BenchLoad) -> str:
    """Return a UUID that is the same whenever the same report is written."""
    parts = (report.measured, variant.name, level_name(load), load.started)
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "\n".join(parts)))


def _timestamps(load: BenchLoad) -> dict[str, Any]:
    times = {"min_request_timestamp": load.started, "max_response_timestamp": load.ended}
    return {tag: {"unit": "ns", "avg": _nanoseconds(time)} for tag, time in times.items() if time}


def _error_summary(load: BenchLoad) -> list[dict[str, Any]]:
    """Return errors as AIPerf counts them: an answer without content is one."""
    found = [
        {
            "error_details": _error_details(error.kind, error.reason, error.status),
            "count": error.count,
        }
        for error in load.errors
    ]
    failed = load.metrics.get("error_request_count")
    empty = round(failed.avg) - sum(error.count for error in load.errors) if failed else 0
    if empty > 0:
        found.append({"error_details": _error_details("empty", EMPTY, 200), "count": empty})
    return found


def _error_details(kind: str, reason: str, status: int | None) -> dict[str, Any]:
    code = {} if status is None else {"code": status}
    return {**code, "type": kind, "message": reason or kind}


def _record(result: LoadResult, start: int, round_number: int) -> dict[str, Any]:
    was_cancelled = result.failure == "cancelled"
    ended = start + round(result.ended_s * 1e9)
    error = None
    if not result.is_answered:
        error = _error_details(result.failure or "", result.reason, result.status)
    elif not has_content(result):
        error = _error_details("empty", EMPTY, result.status)
    return {
        "metadata": {
            "session_num": result.number,
            "turn_index": 0,
            "request_start_ns": start + round(result.sent_s * 1e9),
            "request_end_ns": ended,
            "worker_id": "packager",
            "record_processor_id": "packager",
            "benchmark_phase": "profiling",
            "was_cancelled": was_cancelled,
            **({"cancellation_time_ns": ended} if was_cancelled else {}),
            "round": round_number,
            **({"adapter": result.adapter} if result.adapter else {}),
        },
        "metrics": _record_metrics(result),
        "error": error,
    }


def _record_metrics(result: LoadResult) -> dict[str, Any]:
    if not has_content(result):
        prompt = input_tokens(result)
        return {} if prompt is None else {"error_isl": {"value": prompt, "unit": TOKENS}}
    found: dict[str, Any] = {
        tag: {"value": round(value, DIGITS), "unit": UNITS[tag]}
        for tag, value in request_metrics(result).items()
    }
    gaps = chunk_latencies(result)
    if gaps:
        found[CHUNK_LATENCY] = {"value": [round(gap, DIGITS) for gap in gaps], "unit": MS}
    return found


def _line(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    return hide_secrets(text).encode() + b"\n"


def _folders(names: Sequence[str]) -> list[str]:
    """Return a folder's name for each variant; no two are the same."""
    plain = [_UNSAFE.sub("_", name).strip("._") or "variant" for name in names]
    if len(set(plain)) == len(plain):
        return plain
    return [f"{at}_{name}" for at, name in enumerate(plain, start=1)]


def _nanoseconds(time: str) -> int:
    """Return a time (RFC 3339) in nanoseconds since 1970, exact to the microsecond."""
    since = datetime.fromisoformat(time) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000
