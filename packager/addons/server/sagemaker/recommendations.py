"""AI recommendation jobs as `packager tune`, and back.

Each instance type is a tune of its own, and gives one recommendation: its best candidate, which
was built and measured.  The best of them comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packager.addons.bench.tune.score import headline_load
from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.jobs.values import BackgroundJob, NewJob, Stage
from packager.addons.server.sagemaker.ai_jobs import (
    described,
    mlflow_of,
    notes_file,
    output_place,
    refuse,
    summarized,
    tags_in,
)
from packager.addons.server.sagemaker.answers import PLACES_OF_FILES
from packager.addons.server.sagemaker.optimization import image_output
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.sagemaker.sources import is_argument
from packager.addons.server.sagemaker.workloads import SPEC_FILE, WorkloadConfig
from packager.core.adapters import check_adapter_name
from packager.core.bench import BenchLoad, Metric
from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.references import parse_bucket_place
from packager.core.tuning import TunedCandidate, TuneReport
from packager.estimate.performance.presets import Goal

STAGE, PACKAGE = "tune", "model-package"
GOALS: Mapping[str, Goal] = {"ttft-ms": "latency", "throughput": "throughput", "cost": "cost"}
FAMILIES: Mapping[str, str] = {"LMI": "lmi", "VLLM": "vllm"}
PLAIN = ("--vary", "quantize=none", "--vary", "draft=none")
HERE = "local"
_INSTANCE = "--instance"
_TAGS = {  # AIPerf's metric → the API's, and its statistics
    "request_throughput": ("RequestThroughput", ("avg",)),
    "output_token_throughput": ("OutputTokenThroughput", ("avg",)),
    "request_latency": ("RequestLatency", ("avg", "p50", "p90", "p99")),
    "time_to_first_token": ("TimeToFirstToken", ("avg", "p50", "p90", "p99")),
    "inter_token_latency": ("InterTokenLatency", ("avg", "p50", "p90", "p99")),
}
_KERNELS = (
    *("quantize", "kv_dtype", "dtype", "tp_degree", "pp_degree", "dp_degree", "max_batch"),
    *("max_prefill_tokens", "gpu_memory_utilization"),
)


Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of the tune for one instance type."""

    instance_type: str  # the API's name; "" for this machine
    report: TuneReport
    number: int = 1  # of its stage, from 1: the version of its model package


def make_recommendation(
    body: Mapping[str, Any], workload: WorkloadConfig, settings: JobSettings
) -> NewJob:
    """Return the job of CreateAIRecommendationJob; raise `ValidationRefused`."""
    refuse(body, "OutputConfig.ModelPackageGroupIdentifier", "there is no registry of models")
    refuse(body, "AdapterSource.ModelPackageArns", "there is no registry of models")
    _check_workload(workload)
    name = body["AIRecommendationJobName"]
    shared = (
        *("--model", _model_in(body, settings)),
        *_adapters_in(body),
        *("--goal", _goal_in(body)),
        *_family_in(body),
        *("--workload-spec", f"{{job}}/{SPEC_FILE}"),
        *(("--data", workload.data) if workload.data else ()),
        *(() if body.get("OptimizeModel", True) else PLAIN),
        *("--format", "json", "--progress", "json"),
    )
    place = output_place(body, name)
    instances = _instances_in(body, settings)
    images = [image_output(settings.images, f"{name}-{one}") for one in instances]
    return NewJob(
        kind="recommendation",
        name=name,
        document=body,
        stages=tuple(
            Stage(
                STAGE,
                (
                    *("tune", _INSTANCE, instance),
                    *shared,
                    *("--journal", f"{{job}}/journal-{number}.jsonl"),
                    *("--figures", f"{{job}}/figures-{number}.json"),
                    *("--output", f"{place}{instance}/"),
                    *(("--output", image) if image else ()),
                    *(("--base", settings.base) if settings.base else ()),
                    *settings.executor_options(),
                ),
            )
            for number, (instance, image) in enumerate(zip(instances, images, strict=True), start=1)
        ),
        files={SPEC_FILE: workload.text, **notes_file(body)},
        tags=tags_in(body),
    )


def instance_types(new: NewJob) -> tuple[str, ...]:
    """Return the instance type of each stage's recommendation; "" for none.

    Where the server overrides the instance, it is the first requested one.
    """
    asked = _types_in(new.document)
    tuned = [one.arguments[one.arguments.index(_INSTANCE) + 1] for one in new.stages]
    return tuple(one if one in asked else next(iter(asked), "") for one in tuned)


def describe_recommendation(
    job: BackgroundJob, settings: JobSettings, found: Sequence[Tuned] = ()
) -> dict[str, Any]:
    """Return the answer of DescribeAIRecommendationJob; `found` is of stages that are complete."""
    body = job.asked.document
    echoed = (
        *("InferenceSpecification", "OptimizeModel", "PerformanceTarget", "ComputeSpec"),
        "AdapterSource",
    )
    return {
        **described(job, settings),
        "ModelSource": body["ModelSource"],
        "OutputConfig": {"S3OutputLocation": output_place(body, job.name), **mlflow_of(body)},
        **{name: body[name] for name in echoed if name in body},
        **({"Recommendations": recommendations(found, job.name, settings)} if found else {}),
    }


def summarize_recommendation(job: BackgroundJob, settings: JobSettings) -> dict[str, Any]:
    """Return the entry of ListAIRecommendationJobs."""
    return summarized(job, settings)


def recommendations(
    found: Iterable[Tuned], name: str, settings: JobSettings
) -> list[dict[str, Any]]:
    """Return a recommendation for each instance type for which something could be measured.

    `name` is the job's, which its model packages have, too: SDKs deploy those.
    """
    best = [
        (tuned, candidate, load)
        for tuned in found
        for candidate in tuned.report.candidates
        if candidate.state == "best" and (load := _load_of(tuned.report, candidate))
    ]
    best.sort(key=lambda one: _rank(*one))
    return [
        {
            **_recommendation(tuned, candidate, load),
            **_packaged(tuned, candidate, settings.arn(PACKAGE, f"{name}/{tuned.number}")),
        }
        for tuned, candidate, load in best
    ]


def package_image(tuned: Tuned) -> str:
    """Return the image of a recommendation's model package; "" without a recommendation."""
    best = (one for one in tuned.report.candidates if one.state == "best")
    return next((_image_of(tuned.report, one) for one in best), "")


def describe_package(name: str, tuned: Tuned, settings: JobSettings, created: float) -> Document:
    """Return the answer of DescribeModelPackage: approved, since it was measured here."""
    return {
        "ModelPackageName": name,
        "ModelPackageVersion": tuned.number,
        "ModelPackageArn": settings.arn(PACKAGE, f"{name}/{tuned.number}"),
        "CreationTime": created,
        "InferenceSpecification": {"Containers": [{"Image": package_image(tuned)}]},
        "ModelPackageStatus": "Completed",
        "ModelPackageStatusDetails": {"ValidationStatuses": []},
        "ModelApprovalStatus": "Approved",
    }


def _packaged(tuned: Tuned, candidate: TunedCandidate, arn: str) -> Document:
    if not _image_of(tuned.report, candidate):
        return {}
    where = {"InstanceType": tuned.instance_type} if tuned.instance_type else {}
    return {
        "ModelDetails": {
            "ModelPackageArn": arn,
            "InferenceSpecificationName": f"recommendation-{tuned.number}",
            "InstanceDetails": [{**where, "InstanceCount": 1, "CopyCountPerInstance": 1}],
        }
    }


def _rank(tuned: Tuned, candidate: TunedCandidate, load: BenchLoad) -> tuple[bool, float]:
    """Return what recommendations are ordered by: limits kept, then the goal, the best first."""
    dollars = load.prices.output if load.prices else None
    is_cheap = tuned.report.goal == "cost" and dollars is not None
    worth = dollars if is_cheap and dollars is not None else -(candidate.score or 0.0)
    return (not tuned.report.keeps_limits, worth)


def _recommendation(tuned: Tuned, candidate: TunedCandidate, load: BenchLoad) -> dict[str, Any]:
    report = tuned.report
    where = {"InstanceType": tuned.instance_type} if tuned.instance_type else {}
    image = _image_of(report, candidate)
    details = list(_details(report.request or {}))
    return {
        "RecommendationDescription": _description(report, candidate),
        **({"OptimizationDetails": details} if details else {}),
        "DeploymentConfiguration": {
            **({"ImageUri": image} if image else {}),
            **where,
            "InstanceCount": 1,
            "CopyCountPerInstance": 1,
            "EnvironmentVariables": {},
        },
        "ExpectedPerformance": list(_performance(load)),
    }


def _image_of(report: TuneReport, candidate: TunedCandidate) -> str:
    """Return the best build's image: where it was pushed to, else the one of this machine."""
    built = [one for one in report.images if not one.startswith(PLACES_OF_FILES)]
    if built or not candidate.image:
        return built[0] if built else ""
    digest = f"@{candidate.digest}" if candidate.digest else ""
    return f"{candidate.image}{digest}"


def _description(report: TuneReport, candidate: TunedCandidate) -> str:
    measured = sum(1 for one in report.candidates if one.rounds)
    text = (
        f"{candidate.name}: the best of {measured} measured for {report.goal} on {report.instance}"
    )
    asked = next((one for one in report.candidates if one.name == "as requested"), None)
    if asked and asked is not candidate and (asked.score or 0) > 0 and (candidate.score or 0) > 0:
        gain = (candidate.score or 0) / (asked.score or 1)
        text += f"; {gain:.2f} times the {report.unit} of the model as it is"
    return f"{text}." if report.keeps_limits else f"{text}; it does not keep the limits."


def _details(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    draft = request.get("draft")
    if draft and draft != "none":
        tokens = request.get("speculative_tokens")
        config = {"draft": str(draft), **({"speculative_tokens": str(tokens)} if tokens else {})}
        yield {"OptimizationType": "SpeculativeDecoding", "OptimizationConfig": config}
    tuned = {name: str(request[name]) for name in _KERNELS if request.get(name) is not None}
    tuned |= {
        str(name): str(value) for name, value in (request.get("engine_options") or {}).items()
    }
    if tuned:
        yield {"OptimizationType": "KernelTuning", "OptimizationConfig": tuned}


def _performance(load: BenchLoad) -> Iterator[dict[str, str]]:
    for tag, (name, statistics) in _TAGS.items():
        metric = load.metrics.get(tag)
        for statistic in statistics:
            value = getattr(metric, statistic) if metric else None
            if metric is not None and value is not None:
                yield _figure(name, statistic, metric, value)
    if load.prices is not None and load.prices.output is not None:
        price = Metric(unit="USD/1M tokens", avg=load.prices.output)
        yield _figure("CostPerMillionOutputTokens", "avg", price, price.avg)


def _figure(name: str, statistic: str, metric: Metric, value: float) -> dict[str, str]:
    return {"Metric": name, "Stat": statistic, "Value": f"{value:.6g}", "Unit": metric.unit}


def _load_of(report: TuneReport, candidate: TunedCandidate) -> BenchLoad | None:
    variants = report.bench.variants if report.bench else ()
    loads = next((one.loads for one in variants if one.name == candidate.name), ())
    return headline_load(loads, report.goal, report.bench.limits) if report.bench else None


def _check_workload(workload: WorkloadConfig) -> None:
    """Refuse members of a workload that a tune does not support."""
    if workload.spec.uses_template:
        raise ValidationRefused(
            "the workload has payload_template, and candidates are asked in OpenAI's form",
            hint="leave it out, or measure an endpoint with CreateAIBenchmarkJob",
        )
    refused = (
        ("rate", "request_rate"),
        ("arrivals", "arrival_pattern"),
        ("find", "search_recipe"),
    )
    for name, parameter in refused:
        if name in workload.spec.options:
            raise ValidationRefused(
                f"the workload has {parameter}, and candidates are measured by requests at a time",
                hint="state concurrency instead",
            )


def _model_in(body: Mapping[str, Any], settings: JobSettings) -> str:
    place = str(((body.get("ModelSource") or {}).get("S3") or {}).get("S3Uri") or "")
    mapped = settings.jumpstart.find(place)
    if mapped is not None:
        return mapped
    found = parse_bucket_place(place)
    if found is None or not found.bucket or not is_argument(place):
        raise ValidationRefused(
            f"ModelSource.S3.S3Uri {shorten(place, 200)} is not a place in S3",
            hint="write s3://BUCKET/PREFIX/ of the model's files",
        )
    return place


def _adapters_in(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of the adapters that are baked beside the model."""
    for one in (body.get("AdapterSource") or {}).get("S3Uris") or ():
        name, place = str(one["AdapterId"]), str(one["S3Uri"])
        found = parse_bucket_place(place)
        if found is None or not found.bucket or not is_argument(place):
            raise ValidationRefused(
                f"AdapterSource of {shorten(name, 63)}: {shorten(place, 200)} is not a place in S3",
                hint="write s3://BUCKET/PREFIX/ of PEFT's files",
            )
        try:
            check_adapter_name(name)
        except UsageError as error:
            raise ValidationRefused(f"AdapterSource: {error.message}") from error
        yield from ("--adapter", f"{name}={place}")


def _goal_in(body: Mapping[str, Any]) -> Goal:
    constraints = (body.get("PerformanceTarget") or {}).get("Constraints") or []
    metrics = [one.get("Metric") for one in constraints]
    if len(metrics) != 1 or metrics[0] not in GOALS:
        raise ValidationRefused(
            f"PerformanceTarget.Constraints has {len(metrics)} metrics, expected one of "
            f"{', '.join(GOALS)}",
            hint="state what to look for; limits stand in the workload, as goodput",
        )
    return GOALS[metrics[0]]


def _family_in(body: Mapping[str, Any]) -> tuple[str, ...]:
    framework = (body.get("InferenceSpecification") or {}).get("Framework")
    if framework is None:
        return ()
    if framework not in FAMILIES:
        raise ValidationRefused(
            f"InferenceSpecification.Framework {shorten(framework, 40)} is not one of "
            f"{', '.join(FAMILIES)}"
        )
    return ("--family", FAMILIES[framework])


def _types_in(body: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((body.get("ComputeSpec") or {}).get("InstanceTypes") or ()))


def _instances_in(body: Mapping[str, Any], settings: JobSettings) -> tuple[str, ...]:
    return (settings.instance,) if settings.instance else _types_in(body) or (HERE,)
