"""Models: an image, its environment, and where its data are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from packager.addons.deploy.sagemaker.api_refusals import ResourceNotFound
from packager.addons.server.operations.common import find, keep, list_resources, missing
from packager.addons.server.operations.recommendations import find_package
from packager.addons.server.resources import Resource
from packager.addons.server.sagemaker.hosting import check_model
from packager.addons.server.sagemaker.recommendations import package_image
from packager.addons.server.services import Document, Operation, ServeServices

MODEL = "model"


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return operations by their names."""

    async def create(body: Document) -> Document:
        body = await asyncio.to_thread(_unpacked, services, body)
        check_model(body)
        made = await keep(services, MODEL, body["ModelName"], body)
        return {"ModelArn": made.arn}

    async def describe(body: Document) -> Document:
        found = await find(services, MODEL, body["ModelName"])
        return {**found.document, "ModelArn": found.arn, "CreationTime": found.created}

    async def list_models(body: Document) -> Document:
        return await list_resources(services, MODEL, body, member="Models", summary=_summary)

    async def delete(body: Document) -> Document:
        name = body["ModelName"]
        try:
            await asyncio.to_thread(services.resources.delete, MODEL, name)
        except ResourceNotFound:
            raise missing(services, MODEL, name) from None
        return {}

    return {
        "CreateModel": create,
        "DescribeModel": describe,
        "ListModels": list_models,
        "DeleteModel": delete,
    }


def _unpacked(services: ServeServices, body: Document) -> Document:
    """Return a body whose container has the image of the model package that it names."""
    container = dict(body.get("PrimaryContainer") or {})
    package = container.pop("ModelPackageName", None)
    if package is None:
        return body
    container.pop("InferenceSpecificationName", None)  # a package has one
    _, tuned = find_package(services, package)
    return {**body, "PrimaryContainer": {**container, "Image": package_image(tuned)}}


def _summary(found: Resource) -> Document:
    return {"ModelName": found.name, "ModelArn": found.arn, "CreationTime": found.created}
