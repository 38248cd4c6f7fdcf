"""Application Auto Scaling: stores targets and policies of endpoints, without scaling.

One machine has a fixed number of containers. Notebooks register targets; these can be described and
deleted, and their activities state that nothing is scaled.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import (
    ApiRefusal,
    ResourceInUse,
    ResourceNotFound,
)
from packager.addons.deploy.sagemaker.shapes import read_input
from packager.addons.server.endpoints.deployments import COMPONENT, ENDPOINT
from packager.addons.server.resources import Resource, ResourceQuery
from packager.addons.server.services import Document, Operation, ServeServices

SERVICE = "AnyScaleFrontendService"
API = "application-autoscaling"
TARGET, POLICY = "scalable-target", "scaling-policy"
NOT_SCALED = "packager runs what an endpoint has on this machine: nothing is scaled"
_DIMENSIONS = {
    "sagemaker:variant:DesiredInstanceCount": ENDPOINT,
    "sagemaker:inference-component:DesiredCopyCount": COMPONENT,
}
_OF_TARGETS = ("ServiceNamespace", "ResourceId", "ScalableDimension")
_Work = Callable[[ServeServices, Document], Document]


def scaling_refused(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: the request names a target that cannot be registered here."""
    return ApiRefusal(message, hint=hint, type="ValidationException")


def object_not_found(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: the target or policy does not exist."""
    return ApiRefusal(message, hint=hint, type="ObjectNotFoundException")


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return operations by their names."""

    def of(name: str, work: _Work) -> Operation:
        async def run(body: Document) -> Document:
            return await asyncio.to_thread(work, services, read_input(name, body, API))

        return run

    works: dict[str, _Work] = {
        "RegisterScalableTarget": _register,
        "DescribeScalableTargets": _targets,
        "DeregisterScalableTarget": _deregister,
        "PutScalingPolicy": _put_policy,
        "DescribeScalingPolicies": _policies,
        "DeleteScalingPolicy": _delete_policy,
        "DescribeScalingActivities": _activities,
    }
    return {name: of(name, work) for name, work in works.items()}


def forget_targets(services: ServeServices, resource_id: str) -> None:
    """Remove the targets and policies of a resource that is being deleted, as AWS does."""
    for kind in (TARGET, POLICY):
        for found in kept(services, kind):
            owner = found.document["ResourceId"]
            if owner == resource_id or owner.startswith(f"{resource_id}/"):
                services.resources.delete(kind, found.name)


def _register(services: ServeServices, body: Document) -> Document:
    _check_resource(services, body)
    name = _name(body)
    before = next((one for one in kept(services, TARGET) if one.name == name), None)
    document = {**(before.document if before else {}), **body}
    least, most = document.get("MinCapacity"), document.get("MaxCapacity")
    if least is None or most is None:
        raise scaling_refused("MinCapacity and MaxCapacity are needed to register a target.")
    if least > most:
        raise scaling_refused("MinCapacity is larger than MaxCapacity.")
    made = put(services, TARGET, name, document, arn=_arn(services, "scalable-target", name))
    return {"ScalableTargetARN": made.arn}


def _targets(services: ServeServices, body: Document) -> Document:
    wanted = body.get("ResourceIds")
    role = f"arn:aws:iam::{services.settings.account}:role/packager"  # AWS creates one
    return {
        "ScalableTargets": [
            {
                "RoleARN": role,
                "SuspendedState": dict.fromkeys(
                    (
                        "DynamicScalingInSuspended",
                        "DynamicScalingOutSuspended",
                        "ScheduledScalingSuspended",
                    ),
                    False,
                ),
                **{key: value for key, value in one.document.items() if key != "Tags"},
                "CreationTime": one.created,
                "ScalableTargetARN": one.arn,
            }
            for one in _asked(services, TARGET, body)
            if not wanted or one.document["ResourceId"] in wanted
        ]
    }


def _deregister(services: ServeServices, body: Document) -> Document:
    try:
        services.resources.delete(TARGET, _name(body))
    except ResourceNotFound:
        raise _no_target(body) from None
    for policy in kept(services, POLICY):
        if _name(policy.document) == _name(body):
            services.resources.delete(POLICY, policy.name)
    return {}


def _put_policy(services: ServeServices, body: Document) -> Document:
    if not any(one.name == _name(body) for one in kept(services, TARGET)):
        raise _no_target(body)
    name = _name(body, body["PolicyName"])
    document = {"PolicyType": "StepScaling", **body}
    place = f"resource/sagemaker/{body['ResourceId']}:policyName/{body['PolicyName']}"
    arn = f"{_arn(services, 'scalingPolicy', name)}:{place}".replace(
        "application-autoscaling", "autoscaling"
    )
    made = put(services, POLICY, name, document, arn=arn)
    return {"PolicyARN": made.arn, "Alarms": []}


def _policies(services: ServeServices, body: Document) -> Document:
    names = body.get("PolicyNames")
    return {
        "ScalingPolicies": [
            {**one.document, "PolicyARN": one.arn, "Alarms": [], "CreationTime": one.created}
            for one in _asked(services, POLICY, body)
            if not names or one.document["PolicyName"] in names
        ]
    }


def _delete_policy(services: ServeServices, body: Document) -> Document:
    try:
        services.resources.delete(POLICY, _name(body, body["PolicyName"]))
    except ResourceNotFound:
        raise object_not_found(f"No scaling policy found for {_told(body)}.") from None
    return {}


def _activities(services: ServeServices, body: Document) -> Document:
    """Return one activity per target, which states that nothing is scaled."""
    return {
        "ScalingActivities": [
            {
                "ActivityId": one.name,
                **{key: one.document[key] for key in _OF_TARGETS},
                "Description": "Setting no capacity.",
                "Cause": NOT_SCALED,
                "StartTime": one.modified,
                "EndTime": one.modified,
                "StatusCode": "Unfulfilled",
                "StatusMessage": NOT_SCALED,
            }
            for one in _asked(services, TARGET, body)
        ]
    }


def _check_resource(services: ServeServices, body: Document) -> None:
    """Refuse resources other than variants and components of this server."""
    kind = _DIMENSIONS.get(body["ScalableDimension"])
    parts = body["ResourceId"].split("/")
    named = (kind == ENDPOINT and len(parts) == 4 and parts[::2] == ["endpoint", "variant"]) or (
        kind == COMPONENT and len(parts) == 2 and parts[0] == COMPONENT
    )
    if body["ServiceNamespace"] != "sagemaker" or kind is None or not named:
        raise scaling_refused(
            f"{_told(body)}: only variants (endpoint/NAME/variant/NAME) and inference components "
            "of SageMaker are registered here."
        )
    try:
        found = services.resources.get(kind, parts[1])
    except ResourceNotFound:
        raise scaling_refused(f"There is no {kind} {parts[1]!r} ({_told(body)}).") from None
    shown = found.document["active"] or found.document["next"]
    variants = [variant["name"] for variant in shown["variants"]]
    if kind == ENDPOINT and parts[3] not in variants:
        raise scaling_refused(f"Endpoint {parts[1]!r} has no variant {parts[3]!r}.")


def _asked(services: ServeServices, kind: str, body: Document) -> list[Resource]:
    """Return the resources that match a Describe request's filters."""
    members = [name for name in _OF_TARGETS if body.get(name) is not None]
    return [
        one
        for one in kept(services, kind)
        if all(one.document[name] == body[name] for name in members)
    ]


def kept(services: ServeServices, kind: str) -> list[Resource]:
    """Return all resources of a kind, the oldest first."""
    found: list[Resource] = []
    token = ""
    while True:
        query = ResourceQuery(kind=kind, descending=False, after=token)
        page = services.resources.list(query)
        found += page.resources
        token = page.token
        if not token:
            return found


def put(
    services: ServeServices, kind: str, name: str, document: Mapping[str, Any], *, arn: str
) -> Resource:
    """Keep a resource, in place of one of that name."""
    try:
        return services.resources.create(kind, name, document, arn=arn)
    except ResourceInUse:
        return services.resources.update(kind, name, document=document)


def _name(body: Document, policy: str = "") -> str:
    """Return the name that a target or a policy is kept by."""
    text = "|".join([*(body[name] for name in _OF_TARGETS), policy])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _arn(services: ServeServices, kind: str, name: str) -> str:
    settings = services.settings
    separator = ":" if kind == "scalingPolicy" else "/"
    return f"arn:aws:{API}:{settings.region}:{settings.account}:{kind}{separator}{name}"


def _told(body: Document) -> str:
    return (
        f"service namespace: {body['ServiceNamespace']}, resource ID: {body['ResourceId']}, "
        f"scalable dimension: {body['ScalableDimension']}"
    )


def _no_target(body: Document) -> ApiRefusal:
    return object_not_found(f"No scalable target registered for {_told(body)}.")
