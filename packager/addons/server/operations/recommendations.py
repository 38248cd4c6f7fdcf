"""Recommendation jobs: create, describe, list, stop, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.jobs.errors import JobMissing
from packager.addons.server.jobs.folders import result_file
from packager.addons.server.jobs.values import BackgroundJob
from packager.addons.server.operations.ai_jobs import common_operations, workload_of
from packager.addons.server.sagemaker.ai_jobs import RESOURCES, seconds_of
from packager.addons.server.sagemaker.recommendations import (
    PACKAGE,
    STAGE,
    Tuned,
    describe_package,
    describe_recommendation,
    instance_types,
    make_recommendation,
    package_image,
    summarize_recommendation,
)
from packager.addons.server.services import Document, Operation, ServeServices
from packager.core.documents import NotStrict, parse_model, shorten
from packager.core.files.atomic import read_regular
from packager.core.tuning import TuneReport

_MAX_REPORT_BYTES = 64 * 1024 * 1024


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return the operations of recommendation jobs."""
    settings = services.settings

    async def create(body: Document) -> Document:
        def make() -> BackgroundJob:
            new = make_recommendation(body, workload_of(services, body), settings)
            return services.jobs.create(new)

        job = await asyncio.to_thread(make)
        services.wake()
        return {"AIRecommendationJobArn": settings.arn(RESOURCES["recommendation"], job.name)}

    async def describe(body: Document) -> Document:
        def look() -> Document:
            job = services.jobs.get("recommendation", body["AIRecommendationJobName"])
            return describe_recommendation(job, settings, tuple(_tuned(job)))

        return await asyncio.to_thread(look)

    async def describe_model_package(body: Document) -> Document:
        def look() -> Document:
            job, tuned = find_package(services, body["ModelPackageName"])
            return describe_package(job.name, tuned, settings, seconds_of(job.created))

        return await asyncio.to_thread(look)

    def summarize(job: BackgroundJob) -> Document:
        return summarize_recommendation(job, settings)

    return {
        "CreateAIRecommendationJob": create,
        "DescribeAIRecommendationJob": describe,
        "DescribeModelPackage": describe_model_package,
        **common_operations(services, "recommendation", "AIRecommendationJob", summarize),
    }


def _tuned(job: BackgroundJob) -> Iterator[Tuned]:
    """Yield the results of complete tunes; skip unreadable ones."""
    for number, shown in enumerate(instance_types(job.asked)[: job.stage], start=1):
        try:
            data = read_regular(result_file(job.folder, number, STAGE), _MAX_REPORT_BYTES)
            report = parse_model(TuneReport, data, max_bytes=_MAX_REPORT_BYTES)
        except (OSError, NotStrict):
            continue
        yield Tuned(shown, report, number)


def find_package(services: ServeServices, reference: str) -> tuple[BackgroundJob, Tuned]:
    """Return the recommendation of a model package, `JOB/NUMBER` or its ARN.  Reads the disk.

    Raises `ValidationRefused`, as AWS does, where there is none.
    """
    name, _, number = reference.rpartition(f":{PACKAGE}/")[2].partition("/")
    missing = ValidationRefused(f"ModelPackage {shorten(reference, 176)} does not exist")
    try:
        job = services.jobs.get("recommendation", name)
    except JobMissing:
        raise missing from None
    found = next((one for one in _tuned(job) if str(one.number) == (number or "1")), None)
    if found is None or not package_image(found):
        raise missing
    return job, found
