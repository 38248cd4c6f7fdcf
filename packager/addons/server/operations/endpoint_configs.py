"""Endpoint configurations: which models share an endpoint's requests, and how."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from packager.addons.deploy.sagemaker.api_refusals import ResourceNotFound
from packager.addons.server.operations.common import find, keep, list_resources, missing
from packager.addons.server.operations.models import MODEL
from packager.addons.server.resources import Resource
from packager.addons.server.sagemaker.hosting import check_endpoint_config, model_names
from packager.addons.server.services import Document, Operation, ServeServices

CONFIG = "endpoint-config"


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return operations by their names."""

    async def create(body: Document) -> Document:
        check_endpoint_config(body, captures=services.settings.captures)
        for variant in body["ProductionVariants"]:
            for name in sorted(model_names(variant)):
                await find(services, MODEL, name)
        made = await keep(services, CONFIG, body["EndpointConfigName"], body)
        return {"EndpointConfigArn": made.arn}

    async def describe(body: Document) -> Document:
        found = await find(services, CONFIG, body["EndpointConfigName"])
        return {**found.document, "EndpointConfigArn": found.arn, "CreationTime": found.created}

    async def list_configs(body: Document) -> Document:
        member = "EndpointConfigs"
        return await list_resources(services, CONFIG, body, member=member, summary=_summary)

    async def delete(body: Document) -> Document:
        name = body["EndpointConfigName"]
        try:
            await asyncio.to_thread(services.resources.delete, CONFIG, name)
        except ResourceNotFound:
            raise missing(services, CONFIG, name) from None
        return {}

    return {
        "CreateEndpointConfig": create,
        "DescribeEndpointConfig": describe,
        "ListEndpointConfigs": list_configs,
        "DeleteEndpointConfig": delete,
    }


def _summary(found: Resource) -> Document:
    return {
        "EndpointConfigName": found.name,
        "EndpointConfigArn": found.arn,
        "CreationTime": found.created,
    }
