"""Functions shared by benchmark and recommendation jobs: lists, ends, workloads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from packager.addons.server.jobs.values import ENDED, BackgroundJob, JobKind, JobQuery
from packager.addons.server.operations.common import list_jobs
from packager.addons.server.sagemaker.ai_jobs import (
    RESOURCES,
    STATUSES,
    WORKLOAD_CONFIG,
    name_in,
    statuses_named,
)
from packager.addons.server.sagemaker.workloads import WorkloadConfig, read_workload_config
from packager.addons.server.services import Document, Operation, ServeServices

DEFAULT_PAGE = 50
SORTS: Mapping[str, Literal["created", "name", "status"]] = {
    "CreationTime": "created",
    "Name": "name",
    "Status": "status",
}
Summarize = Callable[[BackgroundJob], Mapping[str, Any]]
KINDS: tuple[JobKind, ...] = ("benchmark", "recommendation")


def common_operations(
    services: ServeServices, kind: JobKind, prefix: str, summarize: Summarize
) -> dict[str, Operation]:
    """Return List, Stop and Delete of a kind of job; names begin with `prefix`."""

    def arn_of(name: str) -> Document:
        return {f"{prefix}Arn": services.settings.arn(RESOURCES[kind], name)}

    async def list_some(body: Document) -> Document:
        page = await list_jobs(services, job_query(kind, body))
        answer = {f"{prefix}s": [summarize(job) for job in page.jobs]}
        return answer | ({"NextToken": page.token} if page.token else {})

    async def stop(body: Document) -> Document:
        name = body[f"{prefix}Name"]
        await asyncio.to_thread(services.jobs.stop, kind, name)
        return arn_of(name)

    async def delete(body: Document) -> Document:
        name = body[f"{prefix}Name"]
        await asyncio.to_thread(services.jobs.delete, kind, name)
        return arn_of(name)

    return {f"List{prefix}s": list_some, f"Stop{prefix}": stop, f"Delete{prefix}": delete}


def job_query(kind: JobKind, body: Document) -> JobQuery:
    """Return the query of a list."""
    status = body.get("StatusEquals")
    return JobQuery(
        kind=kind,
        name_contains=body.get("NameContains", ""),
        statuses=statuses_named(status) if status else frozenset(),
        created_after=moment_in(body, "CreationTimeAfter"),
        created_before=moment_in(body, "CreationTimeBefore"),
        sort_by=SORTS[body.get("SortBy", "CreationTime")],
        descending=body.get("SortOrder", "Descending") == "Descending",
        most=body.get("MaxResults", DEFAULT_PAGE),
        after=body.get("NextToken", ""),
    )


def moment_in(body: Document, name: str) -> datetime | None:
    """Return a time of a body, which has seconds since 1970."""
    return datetime.fromtimestamp(body[name], UTC) if name in body else None


def workload_of(services: ServeServices, body: Document) -> WorkloadConfig:
    """Return the workload that a job names; raises `ResourceNotFound`. Reads the disk."""
    name = name_in(body["AIWorkloadConfigIdentifier"])
    document = services.resources.get(WORKLOAD_CONFIG, name).document
    return read_workload_config(document, services.settings.datasets)


def users_of_workload(services: ServeServices, name: str) -> Iterator[BackgroundJob]:
    """Yield the jobs with this workload that have not ended. Reads the disk."""
    active = frozenset(STATUSES) - ENDED
    for kind in KINDS:
        query = JobQuery(kind=kind, statuses=active)
        while True:
            page = services.jobs.list(query)
            for job in page.jobs:
                if name_in(job.asked.document["AIWorkloadConfigIdentifier"]) == name:
                    yield job
            if not page.token:
                break
            query = JobQuery(kind=kind, statuses=active, after=page.token)
