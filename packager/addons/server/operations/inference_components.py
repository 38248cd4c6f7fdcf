"""Inference components: copies of a model that share an endpoint's name with others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ResourceInUse, ValidationRefused
from packager.addons.server.endpoints.adapters import AdapterSpec, check_adapter
from packager.addons.server.endpoints.deployments import (
    COMPONENT,
    ENDPOINT,
    EndpointDeployment,
    deployments_of,
)
from packager.addons.server.operations.common import find, list_resources, tags_of, taken
from packager.addons.server.operations.models import MODEL
from packager.addons.server.operations.scaling import forget_targets
from packager.addons.server.resources import Resource
from packager.addons.server.sagemaker.hosting import VariantSpec, check_component
from packager.addons.server.services import Document, Operation, ServeServices

_MOST_COPIES = 16  # on one machine


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return operations by their names."""

    async def create(body: Document) -> Document:
        return await _created(services, body)

    async def update(body: Document) -> Document:
        return await _updated(services, body)

    async def set_copies(body: Document) -> Document:
        found = await find(services, COMPONENT, body["InferenceComponentName"])
        if _active(found).adapter is not None:
            raise ValidationRefused("An adapter has the copies of its base.")
        return await _scaled(services, found, _copies(body["DesiredRuntimeConfig"]))

    async def describe(body: Document) -> Document:
        return _described(services, await find(services, COMPONENT, body["InferenceComponentName"]))

    async def list_components(body: Document) -> Document:
        endpoint, variant = body.get("EndpointNameEquals"), body.get("VariantNameEquals")
        return await list_resources(
            services,
            COMPONENT,
            body,
            member="InferenceComponents",
            summary=lambda found: _summary(services, found),
            lets_pass=lambda found: (
                endpoint in (None, found.document["endpoint"])
                and variant in (None, found.document["variant"])
            ),
        )

    async def delete(body: Document) -> Document:
        found = await find(services, COMPONENT, body["InferenceComponentName"])
        if adapters := await _adapters_of(services, found.name):
            raise ValidationRefused(
                f'Cannot delete inference component "{found.arn}": it is the base of the adapter '
                f"{adapters[0]}.",
                hint="delete adapters with DeleteInferenceComponent first",
            )
        await asyncio.to_thread(forget_targets, services, f"{COMPONENT}/{found.name}")
        await services.endpoints.delete(COMPONENT, found.name)
        return {}

    return {
        "CreateInferenceComponent": create,
        "UpdateInferenceComponent": update,
        "UpdateInferenceComponentRuntimeConfig": set_copies,
        "DescribeInferenceComponent": describe,
        "ListInferenceComponents": list_components,
        "DeleteInferenceComponent": delete,
    }


async def _scaled(services: ServeServices, found: Resource, copies: int) -> Document:
    asked = replace(_active(found), copies=copies)
    changed = await services.endpoints.update(COMPONENT, found.name, asked)
    return {"InferenceComponentArn": changed.arn}


async def _updated(services: ServeServices, body: Document) -> Document:
    """Begin to replace what a component runs, or to change its copies."""
    found = await find(services, COMPONENT, body["InferenceComponentName"])
    before = _active(found)
    runtime = body.get("RuntimeConfig")
    copies = _copies(runtime) if runtime else before.copies
    if not body.get("Specification") and not body.get("Specifications"):
        if before.adapter is not None:
            raise ValidationRefused("An adapter has the copies of its base.")
        return await _scaled(services, found, copies)
    variant, instance_type = found.document["variant"], ""
    if body.get("Specifications"):
        of = await _variant_of(services, found.document["endpoint"], variant)
        instance_type = of["instance_type"]
    chosen = _specification(body, instance_type)
    if before.adapter is not None:
        chosen = {"BaseInferenceComponentName": before.adapter.base, **chosen}
        asked = await _adapter(services, found.document["endpoint"], chosen)
    else:
        asked = await _deployment(services, variant, chosen, copies)
    changed = await services.endpoints.update(
        COMPONENT, found.name, asked, specification=chosen, choices=body.get("Specifications")
    )
    return {"InferenceComponentArn": changed.arn}


async def _created(services: ServeServices, body: Document) -> Document:
    """Begin to deploy a component; return its ARN."""
    name, endpoint = body["InferenceComponentName"], body["EndpointName"]
    variant = await _variant_of(services, endpoint, body.get("VariantName"))
    specification = _specification(body, variant["instance_type"])
    if specification.get("BaseInferenceComponentName"):
        asked = await _adapter(services, endpoint, specification)
    else:
        copies = _copies(body.get("RuntimeConfig"))
        asked = await _deployment(services, variant["name"], specification, copies)
    try:
        made = await services.endpoints.create(
            COMPONENT,
            name,
            asked,
            arn=services.settings.arn(COMPONENT, name),
            tags=tags_of(body),
            endpoint=endpoint,
            variant=variant["name"],
            specification=specification,
            choices=body.get("Specifications"),
        )
    except ResourceInUse:
        raise taken(services, COMPONENT, name) from None
    return {"InferenceComponentArn": made.arn}


def _specification(body: Document, instance_type: str) -> Document:
    """Return a component's specification: of several, that for the variant's instance type.

    Without one for that type, the first is used.
    """
    listed = body.get("Specifications") or ()
    if listed and body.get("Specification"):
        raise ValidationRefused("Specification and Specifications exclude each other.")
    chosen = [one for one in listed if one.get("InstanceType") == instance_type] or listed
    return chosen[0] if chosen else body.get("Specification") or {}


async def _variant_of(services: ServeServices, endpoint: str, name: str | None) -> Document:
    """Return the variant that a component belongs to; raises `ValidationRefused`."""
    found = await find(services, ENDPOINT, endpoint)
    active = found.document["active"]
    if active is None or found.status != "InService":
        raise ValidationRefused(f'Endpoint "{found.arn}" is not InService.')
    variants = {one["name"]: one for one in active["variants"]}
    name = name or next(iter(variants))
    if name not in variants:
        raise ValidationRefused(f"There is no production variant {name}.")
    if variants[name]["server"] is not None:
        raise ValidationRefused(
            f"Production variant {name} has a model of its own, and takes no inference component."
        )
    found_variant: Document = variants[name]
    return found_variant


async def _deployment(
    services: ServeServices, variant: str, specification: Document, copies: int
) -> EndpointDeployment:
    model_name = specification.get("ModelName")
    model = (await find(services, MODEL, model_name)).document if model_name else None
    server = check_component(specification, model)
    spec = VariantSpec(name=variant, weight=1.0, count=copies, instance_type="", server=server)
    return EndpointDeployment.new("", (spec,), copies)


async def _adapter(
    services: ServeServices, endpoint: str, specification: Document
) -> EndpointDeployment:
    """Return the deployment of an adapter; raises `ValidationRefused`."""
    spec = check_adapter(specification)
    base = await find(services, COMPONENT, spec.base)
    active = EndpointDeployment.read(base.document["active"])
    if base.document["endpoint"] != endpoint or active is None or base.status != "InService":
        raise ValidationRefused(
            f"Inference component {spec.base} is not InService at endpoint {endpoint}."
        )
    if active.adapter is not None:
        raise ValidationRefused(f"Inference component {spec.base} is an adapter itself.")
    return replace(EndpointDeployment.new("", ()), adapter=spec)


async def _adapters_of(services: ServeServices, base: str) -> list[str]:
    """Return the names of the adapters of a component, those aside that are being deleted."""
    found = []
    for one in await asyncio.to_thread(services.resources.every, COMPONENT):
        specs = (AdapterSpec.read(each.get("adapter")) for each in deployments_of(one))
        if one.status != "Deleting" and any(spec and spec.base == base for spec in specs):
            found.append(one.name)
    return found


def _copies(runtime: Document | None) -> int:
    copies = int((runtime or {}).get("CopyCount", 1))
    if copies > _MOST_COPIES:
        raise ValidationRefused(
            f"CopyCount {copies} is more than one machine takes: {_MOST_COPIES}."
        )
    return copies


def _active(found: Resource) -> EndpointDeployment:
    active = EndpointDeployment.read(found.document["active"])
    if active is None:
        raise ValidationRefused(f'Cannot update in-progress inference component "{found.arn}".')
    return active


def _described(services: ServeServices, found: Resource) -> Document:
    document = found.document
    shown = document["next"] or document["active"]
    specification = dict(document["specification"])
    if shown.get("adapter"):
        failure = document["failure"] or None
        summary = _summary(services, found)
        return {**summary, "FailureReason": failure, "Specification": specification}
    server = shown["variants"][0]["server"]
    container = specification.get("Container")
    if container is not None:
        image = {"SpecifiedImage": server["image"], "ResolvedImage": server["image"]}
        kept = {key: value for key, value in container.items() if key != "Image"}
        specification["Container"] = {**kept, "DeployedImage": image}
    pools = services.endpoints.pools(COMPONENT, found.name)
    ready = sum(server.is_ready for pool in pools.values() for server in pool.servers)
    answer: dict[str, Any] = _summary(services, found) | {
        "FailureReason": document["failure"] or None,
        "Specification": specification,
        "RuntimeConfig": {"DesiredCopyCount": shown["copies"], "CurrentCopyCount": ready},
    }
    if document.get("choices"):
        answer["Specifications"] = [specification]  # the one that is served
    return answer


def _summary(services: ServeServices, found: Resource) -> dict[str, Any]:
    endpoint = found.document["endpoint"]
    return {
        "InferenceComponentName": found.name,
        "InferenceComponentArn": found.arn,
        "EndpointName": endpoint,
        "EndpointArn": services.settings.arn(ENDPOINT, endpoint),
        "VariantName": found.document["variant"],
        "InferenceComponentStatus": found.status,
        "CreationTime": found.created,
        "LastModifiedTime": found.modified,
    }
