"""Endpoints: containers of this machine under one name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ResourceInUse, ValidationRefused
from packager.addons.server.endpoints.deployments import COMPONENT, ENDPOINT, EndpointDeployment
from packager.addons.server.endpoints.devices import has_devices
from packager.addons.server.operations.common import find, list_resources, tags_of, taken
from packager.addons.server.operations.endpoint_configs import CONFIG
from packager.addons.server.operations.models import MODEL
from packager.addons.server.operations.scaling import forget_targets
from packager.addons.server.resources import Resource
from packager.addons.server.sagemaker.data_capture import summary_of
from packager.addons.server.sagemaker.hosting import model_names, variants_of
from packager.addons.server.sagemaker.rollout import ALARMS_IGNORED, read_rollout
from packager.addons.server.services import Document, Operation, ServeServices


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return operations by their names."""

    async def create(body: Document) -> Document:
        name = body["EndpointName"]
        asked = await _deployment(services, body["EndpointConfigName"])
        read_rollout(body.get("DeploymentConfig"), asked.instances)
        try:
            made = await services.endpoints.create(
                ENDPOINT,
                name,
                asked,
                arn=services.settings.arn(ENDPOINT, name),
                tags=tags_of(body),
                policy=body.get("DeploymentConfig"),
            )
        except ResourceInUse:
            raise taken(services, ENDPOINT, name) from None
        return {"EndpointArn": made.arn}

    async def update(body: Document) -> Document:
        name = body["EndpointName"]
        before = await find(services, ENDPOINT, name)
        asked = await _deployment(services, body["EndpointConfigName"])
        if body.get("RetainAllVariantProperties"):
            asked = _with_properties_of(asked, before, body)
        policy = body.get("DeploymentConfig")
        if policy is None and body.get("RetainDeploymentConfig"):
            policy = before.document.get("policy")
        read_rollout(policy, asked.instances)
        changed = await services.endpoints.update(ENDPOINT, name, asked, policy=policy)
        return {"EndpointArn": changed.arn}

    async def describe(body: Document) -> Document:
        return _described(services, await find(services, ENDPOINT, body["EndpointName"]))

    async def list_endpoints(body: Document) -> Document:
        member = "Endpoints"
        return await list_resources(services, ENDPOINT, body, member=member, summary=_summary)

    async def delete(body: Document) -> Document:
        name = body["EndpointName"]
        found = await find(services, ENDPOINT, name)
        if await _components_of(services, name):
            raise ValidationRefused(
                f'Cannot delete endpoint "{found.arn}": it has inference components.',
                hint="delete those with DeleteInferenceComponent first",
            )
        await asyncio.to_thread(forget_targets, services, f"endpoint/{name}")
        await services.endpoints.delete(ENDPOINT, name)
        return {}

    async def set_weights(body: Document) -> Document:
        found = await find(services, ENDPOINT, body["EndpointName"])
        weights = {
            one["VariantName"]: float(one["DesiredWeight"])
            for one in body["DesiredWeightsAndCapacities"]
            if one.get("DesiredWeight") is not None
        }
        await services.endpoints.set_weights(found.name, weights)
        return {"EndpointArn": found.arn}

    return {
        "CreateEndpoint": create,
        "UpdateEndpoint": update,
        "DescribeEndpoint": describe,
        "ListEndpoints": list_endpoints,
        "DeleteEndpoint": delete,
        "UpdateEndpointWeightsAndCapacities": set_weights,
    }


async def _deployment(services: ServeServices, config_name: str) -> EndpointDeployment:
    """Return the deployment of an endpoint configuration, with its models' current state."""
    config = await find(services, CONFIG, config_name)
    variants = config.document["ProductionVariants"]
    names = sorted({name for one in variants for name in model_names(one)})
    models = {name: (await find(services, MODEL, name)).document for name in names}
    is_here = partial(has_devices, gpus=services.endpoints.containers.gpus)
    return EndpointDeployment.new(
        config_name,
        variants_of(config.document, models, is_here),
        capture=config.document.get("DataCaptureConfig"),
    )


def _with_properties_of(
    asked: EndpointDeployment, before: Resource, body: Document
) -> EndpointDeployment:
    """Return a deployment with all that the endpoint has now, but for types that are to change."""
    excluded = body.get("ExcludeRetainedVariantProperties") or ()
    changed = {one["VariantPropertyType"] for one in excluded}
    active = before.document["active"] or {"variants": ()}
    had = {variant["name"]: variant for variant in active["variants"]}
    fields = {"DesiredWeight": "weight", "DesiredInstanceCount": "count"}
    kept = [field for kind, field in fields.items() if kind not in changed]
    variants = tuple(
        replace(variant, **{field: had[variant.name][field] for field in kept})
        if variant.name in had
        else variant
        for variant in asked.variants
    )
    capture = asked.capture if "DataCaptureConfig" in changed else active.get("capture")
    return replace(asked, variants=variants, capture=capture)


async def _components_of(services: ServeServices, endpoint: str) -> bool:
    """Return whether an endpoint has components, those aside that are being deleted."""
    found = await asyncio.to_thread(services.resources.every, COMPONENT)
    return endpoint in (one.document["endpoint"] for one in found if one.status != "Deleting")


def _described(services: ServeServices, found: Resource) -> Document:
    document = found.document
    active, coming = document["active"], document["next"]
    shown = active or coming
    answer: dict[str, Any] = {
        "EndpointName": found.name,
        "EndpointArn": found.arn,
        "EndpointConfigName": shown["config"],
        "EndpointStatus": found.status,
        "FailureReason": document["failure"] or None,
        "CreationTime": found.created,
        "LastModifiedTime": found.modified,
        "LastDeploymentConfig": document.get("policy"),
    }
    if active is not None:
        answer["ProductionVariants"] = [
            _variant(services, found, variant) for variant in active["variants"]
        ]
        capture = active.get("capture")
        is_stopped = services.endpoints.captures.is_stopped(capture)
        answer["DataCaptureConfig"] = summary_of(capture, is_stopped=is_stopped)
    if coming is not None and found.status != "Failed":
        answer["PendingDeploymentSummary"] = {
            "EndpointConfigName": coming["config"],
            "ProductionVariants": [
                _pending(services, found, variant) for variant in coming["variants"]
            ],
            "StartTime": found.modified,
        }
    return answer


def _variant(services: ServeServices, found: Resource, variant: Mapping[str, Any]) -> Document:
    pool = services.endpoints.pools(ENDPOINT, found.name).get(variant["name"])
    ready = sum(server.is_ready for server in pool.servers) if pool else 0
    server = variant["server"]
    answer: dict[str, Any] = {
        "VariantName": variant["name"],
        "CurrentWeight": variant["weight"],
        "DesiredWeight": variant["weight"],
        "CurrentInstanceCount": ready if server else variant["count"],
        "DesiredInstanceCount": variant["count"],
    }
    if variant.get("pools"):
        chosen = variant["instance_type"]
        count = answer["CurrentInstanceCount"]
        answer["InstancePools"] = [
            {"InstanceType": one, "CurrentInstanceCount": count if one == chosen else 0}
            for one in variant["pools"]
        ]
    if server:
        image = server["image"]
        answer["DeployedImages"] = [
            {"SpecifiedImage": image, "ResolvedImage": image, "ResolutionTime": found.created}
        ]
    return answer


def _pending(services: ServeServices, found: Resource, variant: Mapping[str, Any]) -> Document:
    shifted = services.endpoints.shifted(found.name)
    status = "Creating" if shifted is None else "Baking" if shifted == 1 else "ActivatingTraffic"
    messages = [] if shifted is None else [f"{shifted:.0%} of the requests"]
    if (document := found.document.get("policy")) and document.get("AutoRollbackConfiguration"):
        messages.append(ALARMS_IGNORED)
    return {
        "VariantName": variant["name"],
        "DesiredWeight": variant["weight"],
        "DesiredInstanceCount": variant["count"],
        "InstanceType": variant["instance_type"],
        "VariantStatus": [{"Status": status, "StatusMessage": "; ".join(messages) or None}],
    }


def _summary(found: Resource) -> Document:
    return {
        "EndpointName": found.name,
        "EndpointArn": found.arn,
        "CreationTime": found.created,
        "LastModifiedTime": found.modified,
        "EndpointStatus": found.status,
    }
