"""Workload configurations: create, describe, list, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from packager.addons.deploy.sagemaker.api_refusals import ResourceInUse
from packager.addons.server.operations.ai_jobs import DEFAULT_PAGE, moment_in, users_of_workload
from packager.addons.server.resources import Resource, ResourceQuery
from packager.addons.server.sagemaker.ai_jobs import WORKLOAD_CONFIG, seconds_of, tag_list, tags_in
from packager.addons.server.sagemaker.workloads import read_workload_config
from packager.addons.server.services import Document, Operation, ServeServices

_SORTS: Mapping[str, Literal["created", "name"]] = {"CreationTime": "created", "Name": "name"}


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return the operations of workload configurations."""

    async def create(body: Document) -> Document:
        def keep() -> Resource:
            read_workload_config(body, services.settings.datasets)  # refuses invalid workloads
            tags = tags_in(body)
            name = body["AIWorkloadConfigName"]
            document = {key: value for key, value in body.items() if key != "Tags"}
            arn = services.settings.arn(WORKLOAD_CONFIG, name)
            return services.resources.create(WORKLOAD_CONFIG, name, document, arn=arn, tags=tags)

        return _arn(await asyncio.to_thread(keep))

    async def describe(body: Document) -> Document:
        name = body["AIWorkloadConfigName"]
        found = await asyncio.to_thread(services.resources.get, WORKLOAD_CONFIG, name)
        return {**found.document, **_summary(found), "Tags": tag_list(found.tags)}

    async def list_some(body: Document) -> Document:
        query = ResourceQuery(
            kind=WORKLOAD_CONFIG,
            name_contains=body.get("NameContains", ""),
            created_after=moment_in(body, "CreationTimeAfter"),
            created_before=moment_in(body, "CreationTimeBefore"),
            sort_by=_SORTS[body.get("SortBy", "CreationTime")],
            descending=body.get("SortOrder", "Descending") == "Descending",
            most=body.get("MaxResults", DEFAULT_PAGE),
            after=body.get("NextToken", ""),
        )
        page = await asyncio.to_thread(services.resources.list, query)
        answer = {"AIWorkloadConfigs": [_summary(one) for one in page.resources]}
        return answer | ({"NextToken": page.token} if page.token else {})

    async def delete(body: Document) -> Document:
        name = body["AIWorkloadConfigName"]

        def remove() -> Resource:
            user = next(users_of_workload(services, name), None)
            if user is not None:
                raise ResourceInUse(
                    f"the workload configuration {name!r} is that of the {user.kind} job "
                    f"{user.name!r}, which has not ended"
                )
            return services.resources.delete(WORKLOAD_CONFIG, name)

        return _arn(await asyncio.to_thread(remove))

    return {
        "CreateAIWorkloadConfig": create,
        "DescribeAIWorkloadConfig": describe,
        "ListAIWorkloadConfigs": list_some,
        "DeleteAIWorkloadConfig": delete,
    }


def _arn(found: Resource) -> Document:
    return {"AIWorkloadConfigArn": found.arn}


def _summary(found: Resource) -> dict[str, Any]:
    return {
        "AIWorkloadConfigName": found.name,
        "AIWorkloadConfigArn": found.arn,
        "CreationTime": seconds_of(found.created),
    }
