"""Optimization jobs: create, describe, list, stop, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from packager.addons.deploy.sagemaker.api_refusals import ResourceNotFound
from packager.addons.server.jobs.values import BackgroundJob, JobPage, JobQuery, JobStatus
from packager.addons.server.operations.common import list_jobs
from packager.addons.server.sagemaker.answers import STATUSES, describe, job_arn, summary
from packager.addons.server.sagemaker.optimization import make_job, techniques
from packager.addons.server.services import Document, Operation, ServeServices
from packager.core.documents import NotStrict, parse_model
from packager.core.files.atomic import read_regular
from packager.core.record import BuildRecord

KIND: Literal["optimization"] = "optimization"
MODEL_KIND = "model"  # of resources
DEFAULT_PAGE = 50  # as of AWS
_MAX_RECORD_BYTES = 64 * 1024 * 1024

_SORTS: dict[str, Literal["created", "name", "status"]] = {
    "CreationTime": "created",
    "Name": "name",
    "Status": "status",
}


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return the operations of optimization jobs."""
    jobs, settings = services.jobs, services.settings

    def find_model(name: str) -> Document | None:
        try:
            return services.resources.get(MODEL_KIND, name).document
        except ResourceNotFound:
            return None

    async def create(body: Document) -> Document:
        def make() -> BackgroundJob:
            return jobs.create(
                make_job(body, settings, find_model=find_model, read_config=services.read_config)
            )

        made = await asyncio.to_thread(make)
        services.wake()
        return {"OptimizationJobArn": job_arn(made.name, settings)}

    async def describe_one(body: Document) -> Document:
        # One row by its key: a thread would take ten times as long.
        job = jobs.get(KIND, body["OptimizationJobName"])
        has_record = job.status == "completed"
        record = await asyncio.to_thread(_record_of, job) if has_record else None
        return describe(job, settings, record)

    async def list_some(body: Document) -> Document:
        page = await _page_of(services, _query(body), body.get("OptimizationContains", ""))
        answer = {"OptimizationJobSummaries": [summary(job, settings) for job in page.jobs]}
        return answer | ({"NextToken": page.token} if page.token else {})

    async def stop(body: Document) -> Document:
        await asyncio.to_thread(jobs.stop, KIND, body["OptimizationJobName"])
        return {}

    async def delete(body: Document) -> Document:
        await asyncio.to_thread(jobs.delete, KIND, body["OptimizationJobName"])
        return {}

    return {
        "CreateOptimizationJob": create,
        "DescribeOptimizationJob": describe_one,
        "ListOptimizationJobs": list_some,
        "StopOptimizationJob": stop,
        "DeleteOptimizationJob": delete,
    }


def _query(body: Document) -> JobQuery:
    wanted: frozenset[JobStatus] = frozenset(
        ours for ours, theirs in STATUSES.items() if theirs == body.get("StatusEquals")
    )
    return JobQuery(
        kind=KIND,
        name_contains=body.get("NameContains", ""),
        statuses=wanted,
        created_after=_moment(body, "CreationTimeAfter"),
        created_before=_moment(body, "CreationTimeBefore"),
        modified_after=_moment(body, "LastModifiedTimeAfter"),
        modified_before=_moment(body, "LastModifiedTimeBefore"),
        sort_by=_SORTS[body.get("SortBy", "CreationTime")],
        descending=body.get("SortOrder") == "Descending",
        most=body.get("MaxResults", DEFAULT_PAGE),
        after=body.get("NextToken", ""),
    )


async def _page_of(services: ServeServices, query: JobQuery, technique: str) -> JobPage:
    """Return a page of the jobs that apply a technique, which the store cannot filter by.

    Each query requests only the missing rows, so that the store's token is that of our page.
    """
    found: list[BackgroundJob] = []
    while True:
        page = await list_jobs(services, replace(query, most=query.most - len(found)))
        found += [job for job in page.jobs if _applies(job, technique)]
        if len(found) >= query.most or not page.token:
            return JobPage(tuple(found), page.token)
        query = replace(query, after=page.token)


def _applies(job: BackgroundJob, technique: str) -> bool:
    wanted = technique.lower()
    return not wanted or any(wanted in one.lower() for one in techniques(job.asked.document))


def _record_of(job: BackgroundJob) -> BuildRecord | None:
    """Return the record of a job's build; None where there is none that can be read."""
    if job.status != "completed":
        return None
    try:
        data = read_regular(job.record, _MAX_RECORD_BYTES)
        return parse_model(BuildRecord, data, max_bytes=_MAX_RECORD_BYTES)
    except (OSError, NotStrict):
        return None


def _moment(body: Document, name: str) -> datetime | None:
    return datetime.fromtimestamp(body[name], UTC) if name in body else None
