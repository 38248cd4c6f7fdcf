"""One load as `vllm bench serve --save-result` writes it, and read back as a report.

What we measure beside its fields is below `packager`.  The published results of AWS's
optimization jobs are files of this kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from packager.addons.bench.export import own_fields
from packager.addons.bench.request_metrics import CHUNK_LATENCY, ITL, LATENCY, MS, TOKENS, TTFT
from packager.core.bench import BenchLoad, BenchReport, BenchVariant, BenchWorkload, Metric
from packager.core.bench_setup import BenchSetup
from packager.core.documents import NotStrict
from packager.core.speculation import Acceptance
from packager.core.text import escape
from packager.core.validation import first_fault
from packager.estimate.performance.vllm_runs import VllmRun, read_vllm_run

_TIMES = {"ttft": TTFT, "tpot": ITL, "itl": CHUNK_LATENCY, "e2el": LATENCY}  # theirs → ours
_STATISTICS = {"mean": "avg", "median": "p50", "std": "std", "p99": "p99"}
_RATES = {
    "request_throughput": ("request_throughput", "requests/sec"),
    "output_throughput": ("output_token_throughput", "tokens/sec"),
    "total_token_throughput": ("total_token_throughput", "tokens/sec"),
}
_TOTALS = {"total_input_tokens": "total_isl", "total_output_tokens": "total_osl"}
_OWN = "packager"


def vllm_result(report: BenchReport, variant: BenchVariant, load: BenchLoad) -> dict[str, Any]:
    """Return the document of one load of one server; times are in milliseconds."""
    metrics = load.metrics
    found: dict[str, Any] = {
        "date": load.started,
        "backend": "openai-chat",
        "label": variant.name,
        "model_id": variant.setup.model,
        "num_prompts": load.requests,
        "request_rate": load.rate or "inf",
        "max_concurrency": load.concurrency,
        "duration": load.seconds,
        "completed": load.answered,
        "failed": load.requests - load.answered,
    }
    for theirs, ours in _TOTALS.items():
        found[theirs] = int(metrics[ours].avg) if ours in metrics else 0
    for theirs, (ours, _) in _RATES.items():
        found[theirs] = metrics[ours].avg if ours in metrics else 0.0
    for name, tag in _TIMES.items():
        if (metric := metrics.get(tag)) is not None:
            values = metric.model_dump()
            found |= {f"{word}_{name}_ms": values[ours] for word, ours in _STATISTICS.items()}
    return found | dict(_acceptance(load.acceptance)) | {_OWN: _own(report, variant, load)}


def report_of_vllm(document: Mapping[str, Any], name: str) -> BenchReport:
    """Return a result as a report of one load; raise `NotStrict` where it is none.

    `name` is that of the variant where the document has no label.
    """
    own = document.get(_OWN)
    own = own if isinstance(own, dict) else {}
    run = read_vllm_run(document)
    label = document.get("label")
    try:
        load = BenchLoad(
            concurrency=run.concurrency,
            rate=run.rate,
            requests=run.completed + run.failed,
            answered=run.completed,
            seconds=run.figures.get("duration", 0.0),
            started=escape(str(document.get("date", ""))),
            metrics=dict(_metrics(run)),
            rounds=own.get("rounds", ()),
            notes=own.get("notes", ()),
        )
        setup = BenchSetup.model_validate(own.get("setup") or {"model": escape(run.model)})
        workload = BenchWorkload.model_validate(
            own.get("workload") or {"name": "requests of vllm bench serve"}
        )
    except (ValidationError, TypeError) as error:
        raise NotStrict(
            first_fault(error) if isinstance(error, ValidationError) else str(error)
        ) from None
    return BenchReport(
        packager_version=escape(str(own.get("version", "vllm bench serve"))),
        measured=escape(str(own.get("measured") or load.started)),
        machine=escape(str(own.get("machine", ""))),
        workload=workload,
        rounds=len(load.rounds) or 1,
        variants=(
            BenchVariant(
                name=escape(label) if isinstance(label, str) and label else name,
                setup=setup,
                loads=(load,),
            ),
        ),
    )


def _own(report: BenchReport, variant: BenchVariant, load: BenchLoad) -> dict[str, Any]:
    return {
        **own_fields(report, variant, load),
        "measured": report.measured,
        "workload": report.workload.model_dump(exclude_none=True),
    }


def _acceptance(accepted: Acceptance | None) -> Iterator[tuple[str, Any]]:
    """Yield the fields that vLLM adds for a model with a draft, if the server reports them."""
    if accepted is None:
        return
    values = {
        "acceptance_rate": None if accepted.rate is None else 100 * accepted.rate,  # per cent
        "acceptance_length": accepted.length,
        "num_drafts": accepted.drafts,
        "draft_tokens": accepted.draft_tokens,
        "accepted_tokens": accepted.accepted_tokens,
        "per_position_acceptance_rates": list(accepted.by_position) or None,
    }
    for name, value in values.items():
        if value is not None:
            yield f"spec_decode_{name}", value


def _metrics(run: VllmRun) -> Iterator[tuple[str, Metric]]:
    figures = run.figures
    for name, tag in _TIMES.items():
        found = {ours: figures.get(f"{word}_{name}_ms") for word, ours in _STATISTICS.items()}
        if found["avg"] is not None:
            yield tag, Metric.model_validate({"unit": MS, **found})
    for theirs, (ours, unit) in _RATES.items():
        if (value := figures.get(theirs)) is not None:
            yield ours, Metric(unit=unit, avg=value)
    for theirs, ours in _TOTALS.items():
        if (value := figures.get(theirs)) is not None:
            yield ours, Metric(unit=TOKENS, avg=value)
    yield "request_count", Metric(unit="requests", avg=run.completed)
