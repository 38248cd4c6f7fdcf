"""Optimization jobs as the API describes them: what Describe, List and the command print."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from packager.addons.server.jobs.values import BackgroundJob, JobStatus
from packager.addons.server.sagemaker.optimization import techniques
from packager.addons.server.sagemaker.settings import JobSettings
from packager.core.record import BuildRecord
from packager.core.text import escape

LONGEST_REASON = 1024  # characters of FailureReason
LONGEST_IMAGE = 255  # of RecommendedInferenceImage
PLACES_OF_FILES = ("dir:", "s3:")  # outputs other than images

STATUSES: Mapping[JobStatus, str] = {
    "queued": "STARTING",
    "running": "INPROGRESS",
    "stopping": "STOPPING",
    "completed": "COMPLETED",
    "failed": "FAILED",
    "stopped": "STOPPED",
}

_REPEATED = (
    "OptimizationJobName",
    "ModelSource",
    "OptimizationEnvironment",
    "DeploymentInstanceType",
    "MaxInstanceCount",
    "OptimizationConfigs",
    "OutputConfig",
    "RoleArn",
    "StoppingCondition",
    "VpcConfig",
    "TrainingPlanArns",
)


def job_arn(name: str, settings: JobSettings) -> str:
    """Return the ARN of an optimization job."""
    return f"arn:aws:sagemaker:{settings.region}:{settings.account}:optimization-job/{name}"


def describe(
    job: BackgroundJob, settings: JobSettings, record: BuildRecord | None = None
) -> dict[str, Any]:
    """Return DescribeOptimizationJob's answer; times are seconds since 1970.

    `record` is of the job's build, once it is complete.
    """
    document = job.asked.document
    answer = {name: document[name] for name in _REPEATED if name in document}
    answer |= {
        "OptimizationJobArn": job_arn(job.name, settings),
        "OptimizationJobStatus": STATUSES[job.status],
        **_times(job),
        "OptimizationOutput": {},
    }
    if job.failure:
        answer["FailureReason"] = _shortened(escape(job.failure))
    if record is not None and job.status == "completed":
        answer["OptimizationOutput"] = {"RecommendedInferenceImage": recommended_image(record)}
    return answer


def summary(job: BackgroundJob, settings: JobSettings) -> dict[str, Any]:
    """Return a job as ListOptimizationJobs has it."""
    document = job.asked.document
    counted = {name: document[name] for name in ("MaxInstanceCount",) if name in document}
    return {
        "OptimizationJobName": job.name,
        "OptimizationJobArn": job_arn(job.name, settings),
        "OptimizationJobStatus": STATUSES[job.status],
        **_times(job),
        "DeploymentInstanceType": document["DeploymentInstanceType"],
        **counted,
        "OptimizationTypes": list(techniques(document)),
    }


def recommended_image(record: BuildRecord) -> str:
    """Return the image that serves a job's result, pinned by its digest.

    It is the one that was built; where the job writes files only, the one that reads them.
    """
    name, digest = record.base.reference, record.base.digest
    serving = record.trees[0].image if record.trees else ""
    if serving not in ("", name):  # no base was needed, so that none was pinned
        name, digest = serving, ""
    if record.images:
        name, digest = record.images[0].name, record.images[0].digest
    pinned = f"{name.partition('@')[0]}@{digest}" if digest else name
    return pinned if len(pinned) <= LONGEST_IMAGE else digest or name[:LONGEST_IMAGE]


def finished_model(body: Mapping[str, Any], record: BuildRecord) -> dict[str, Any]:
    """Return the body of CreateModel with a build's image and its environment.

    Our images contain their settings; a base that reads files needs them as variables.
    """
    container = {**body["PrimaryContainer"], "Image": recommended_image(record)}
    if not record.images and record.trees and record.trees[0].env:
        container["Environment"] = dict(record.trees[0].env)
    return {**body, "PrimaryContainer": container}


def seconds(moment: datetime) -> float:
    """Return a moment as the API writes it: seconds since 1970, with milliseconds."""
    return round(moment.timestamp(), 3)


def _times(job: BackgroundJob) -> dict[str, float]:
    times = {"CreationTime": seconds(job.created), "LastModifiedTime": seconds(job.modified)}
    if job.started is not None:
        times["OptimizationStartTime"] = seconds(job.started)
    if job.ended is not None:
        times["OptimizationEndTime"] = seconds(job.ended)
    return times


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"
