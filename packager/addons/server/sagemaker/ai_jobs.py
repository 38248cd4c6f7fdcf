"""What benchmark and recommendation jobs have in common: names, ARNs, statuses, places, tags."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.jobs.values import NOTES_FILE, BackgroundJob, JobKind, JobStatus
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.sagemaker.sources import is_argument
from packager.core.documents import shorten
from packager.core.references import parse_bucket_place

MLFLOW = "MlflowConfig"
WORKLOAD_CONFIG, ENDPOINT = "ai-workload-config", "endpoint"
RESOURCES: Mapping[JobKind, str] = {
    "benchmark": "ai-benchmark-job",
    "recommendation": "ai-recommendation-job",
}
STATUSES: Mapping[JobStatus, str] = {
    "queued": "InProgress",
    "running": "InProgress",
    "stopping": "Stopping",
    "completed": "Completed",
    "failed": "Failed",
    "stopped": "Stopped",
}
LONGEST_FAILURE = 1024


def name_in(identifier: str) -> str:
    """Return the name that an identifier, a name or an ARN, ends with."""
    return identifier.rpartition("/")[2]


def statuses_named(status: str) -> frozenset[JobStatus]:
    """Return the statuses of the store that the API calls so."""
    return frozenset(own for own, shown in STATUSES.items() if shown == status)


def output_place(body: Mapping[str, Any], name: str) -> str:
    """Return the address of a job's results, below the requested one.

    Each job has its own directory, since jobs share the SDK's default bucket, and its readers use
    the first archive that they find.
    """
    asked = str((body.get("OutputConfig") or {}).get("S3OutputLocation") or "")
    found = parse_bucket_place(asked)
    if found is None or not found.bucket or not is_argument(asked):
        raise ValidationRefused(
            f"OutputConfig.S3OutputLocation {shorten(asked, 200)} is not a place in S3",
            hint="write s3://BUCKET/PREFIX/",
        )
    return f"{asked.rstrip('/')}/{name}/"


def refuse(body: Mapping[str, Any], path: str, why: str) -> None:
    """Refuse a body with a value at a path, `A.B`; an empty one counts as absent."""
    found: Any = body
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if found not in (None, "", {}, []):
        raise ValidationRefused(f"{path} is not taken here: {why}", hint="leave it out")


def notes_file(body: Mapping[str, Any]) -> dict[str, bytes]:
    """Return a file of members that are stored without effect; none without members."""
    compute = body.get("ComputeSpec") or {}
    notes = []
    if mlflow_of(body):
        notes.append("note: OutputConfig.MlflowConfig is kept: nothing is sent to MLflow\n")
    if compute.get("CapacityReservationConfig"):
        notes.append("note: ComputeSpec.CapacityReservationConfig is kept: nothing is reserved\n")
    return {NOTES_FILE: "".join(notes).encode()} if notes else {}


def mlflow_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the MlflowConfig of an OutputConfig, as Describe tells it; empty without one."""
    found = (body.get("OutputConfig") or {}).get(MLFLOW)
    return {MLFLOW: found} if found else {}


def tags_in(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a new resource; refuse duplicate keys."""
    found: dict[str, str] = {}
    for tag in body.get("Tags") or ():
        if tag["Key"] in found:
            raise ValidationRefused(
                f"the tag {shorten(tag['Key'], 128)} is given twice", hint="give each tag once"
            )
        found[tag["Key"]] = tag["Value"]
    return found


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as the API lists them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def seconds_of(time: datetime) -> float:
    """Return a time as the API writes it: seconds since 1970, to the millisecond."""
    return round(time.timestamp(), 3)


def described(job: BackgroundJob, settings: JobSettings) -> dict[str, Any]:
    """Return what Describe tells of either kind of job; names begin with the kind's."""
    prefix = "AIBenchmarkJob" if job.kind == "benchmark" else "AIRecommendationJob"
    body = job.asked.document
    found: dict[str, Any] = {
        f"{prefix}Name": job.name,
        f"{prefix}Arn": settings.arn(RESOURCES[job.kind], job.name),
        f"{prefix}Status": STATUSES[job.status],
        "AIWorkloadConfigIdentifier": body["AIWorkloadConfigIdentifier"],
        "RoleArn": body["RoleArn"],
        "CreationTime": seconds_of(job.created),
        "Tags": tag_list(job.asked.tags),
    }
    if job.started is not None:
        found["StartTime"] = seconds_of(job.started)
    if job.ended is not None:
        found["EndTime"] = seconds_of(job.ended)
    if job.failure:
        found["FailureReason"] = job.failure[:LONGEST_FAILURE]
    return found


def summarized(job: BackgroundJob, settings: JobSettings) -> dict[str, Any]:
    """Return what List tells of either kind of job."""
    fields = described(job, settings)
    names = ("Name", "Arn", "Status")
    prefix = "AIBenchmarkJob" if job.kind == "benchmark" else "AIRecommendationJob"
    shown = [*(f"{prefix}{name}" for name in names), "CreationTime", "EndTime"]
    return {name: fields[name] for name in shown if name in fields}
