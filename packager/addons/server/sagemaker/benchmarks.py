"""AI benchmark jobs as `packager bench`, and back.

The server that is measured is a container of an endpoint, at its own port: the runtime API would
add its own latency, and its streams have another format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.jobs.values import BackgroundJob, NewJob, Stage
from packager.addons.server.sagemaker.ai_jobs import (
    described,
    mlflow_of,
    name_in,
    notes_file,
    output_place,
    refuse,
    summarized,
    tags_in,
)
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.sagemaker.workloads import SPEC_FILE, WorkloadConfig

LOG_GROUP = "/aws/sagemaker/AIBenchmarkJobs"
_INVOCATIONS = "invocations"  # which every container of an endpoint answers


def target_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return the endpoint that is to be measured, and its inference component, "" for none."""
    endpoint = (body.get("BenchmarkTarget") or {}).get("Endpoint")
    if not endpoint:
        raise ValidationRefused(
            "BenchmarkTarget.Endpoint is missing", hint="name an endpoint of this server"
        )
    refuse(
        body,
        "BenchmarkTarget.Endpoint.TargetContainerHostname",
        "an endpoint's model has one container",
    )
    components = endpoint.get("InferenceComponents") or []
    if len(components) > 1:
        raise ValidationRefused(
            f"BenchmarkTarget.Endpoint has {len(components)} inference components, expected one",
            hint="start a job for each",
        )
    component = name_in(components[0]["Identifier"]) if components else ""
    return name_in(endpoint["Identifier"]), component


def make_benchmark(body: Mapping[str, Any], workload: WorkloadConfig, address: str) -> NewJob:
    """Return the job of CreateAIBenchmarkJob; raise `ValidationRefused`.

    `address` is the URL at which the target answers.
    """
    target_of(body)
    name = body["AIBenchmarkJobName"]
    data = ("--data", workload.data) if workload.data else ()
    template = ("--request-template", workload.template) if workload.template else ()
    endpoint = () if "endpoint" in workload.spec.options else ("--endpoint", _INVOCATIONS)
    return NewJob(
        kind="benchmark",
        name=name,
        document=body,
        stages=(
            Stage(
                "bench",
                (
                    "bench",
                    address,
                    "--workload-spec",
                    f"{{job}}/{SPEC_FILE}",
                    *data,
                    *template,
                    *endpoint,
                    "--output",
                    output_place(body, name),
                    "--format",
                    "json",
                    "--progress",
                    "json",
                ),
            ),
        ),
        files={SPEC_FILE: workload.text, **notes_file(body)},
        tags=tags_in(body),
    )


def describe_benchmark(job: BackgroundJob, settings: JobSettings) -> dict[str, Any]:
    """Return the answer of DescribeAIBenchmarkJob.

    `OutputConfig.S3OutputLocation` is the job's own place, from which `show_result` of the SDK
    reads.
    """
    body = job.asked.document
    group = f"arn:aws:logs:{settings.region}:{settings.account}:log-group:{LOG_GROUP}"
    return {
        **described(job, settings),
        "BenchmarkTarget": body["BenchmarkTarget"],
        "OutputConfig": {
            "S3OutputLocation": output_place(body, job.name),
            "CloudWatchLogs": [{"LogGroupArn": group, "LogStreamName": job.name}],
            **mlflow_of(body),
        },
        **({"NetworkConfig": body["NetworkConfig"]} if body.get("NetworkConfig") else {}),
    }


def summarize_benchmark(job: BackgroundJob, settings: JobSettings) -> dict[str, Any]:
    """Return the entry of ListAIBenchmarkJobs."""
    workload = name_in(job.asked.document["AIWorkloadConfigIdentifier"])
    return {**summarized(job, settings), "AIWorkloadConfigName": workload}
