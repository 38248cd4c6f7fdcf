"""Benchmark jobs: create, describe, list, stop, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.endpoints.deployments import COMPONENT, ENDPOINT
from packager.addons.server.jobs.values import BackgroundJob
from packager.addons.server.operations.ai_jobs import common_operations, workload_of
from packager.addons.server.sagemaker.ai_jobs import RESOURCES
from packager.addons.server.sagemaker.benchmarks import (
    describe_benchmark,
    make_benchmark,
    summarize_benchmark,
    target_of,
)
from packager.addons.server.services import Document, Operation, ServeServices


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return the operations of benchmark jobs."""
    settings = services.settings

    async def create(body: Document) -> Document:
        workload = await asyncio.to_thread(workload_of, services, body)
        address = await address_of(services, *target_of(body))
        job = await asyncio.to_thread(services.jobs.create, make_benchmark(body, workload, address))
        services.wake()
        return {"AIBenchmarkJobArn": settings.arn(RESOURCES["benchmark"], job.name)}

    async def describe(body: Document) -> Document:
        name = body["AIBenchmarkJobName"]
        return describe_benchmark(services.jobs.get("benchmark", name), settings)

    def summarize(job: BackgroundJob) -> Document:
        return summarize_benchmark(job, settings)

    return {
        "CreateAIBenchmarkJob": create,
        "DescribeAIBenchmarkJob": describe,
        **common_operations(services, "benchmark", "AIBenchmarkJob", summarize),
    }


async def address_of(services: ServeServices, endpoint: str, component: str = "") -> str:
    """Return the URL of a container of an endpoint, or of an inference component of it.

    Raises `ResourceNotFound` where there is none of the name, and `ValidationRefused` where none
    of its containers answers, or those of several variants do.
    """
    found = await asyncio.to_thread(services.resources.get, ENDPOINT, endpoint)
    kind, name = ENDPOINT, endpoint
    if component:
        found = await asyncio.to_thread(services.resources.get, COMPONENT, component)
        kind, name = COMPONENT, component
        if found.document.get("endpoint") != endpoint:
            raise ValidationRefused(
                f"the inference component {component!r} is not one of the endpoint {endpoint!r}"
            )
    pools = services.endpoints.pools(kind, name)
    if len(pools) > 1:
        raise ValidationRefused(
            f"the endpoint {name!r} has {len(pools)} variants: {', '.join(sorted(pools))}",
            hint="a benchmark measures one server; make an endpoint for each variant",
        )
    server = next((pool.pick() for pool in pools.values()), None)
    if server is None:
        raise ValidationRefused(
            f"{found.arn} is {found.status}, and must be InService to be measured"
        )
    return server.url
