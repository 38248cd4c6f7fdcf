"""A template of CloudFormation that makes the same endpoint as the requests do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from packager.addons.deploy.sagemaker.requests import Request
from packager.addons.deploy.sagemaker.scaling import OF_POLICY
from packager.core.errors import UsageError

TYPES = {
    "Model": "AWS::SageMaker::Model",
    "EndpointConfig": "AWS::SageMaker::EndpointConfig",
    "Endpoint": "AWS::SageMaker::Endpoint",
    "InferenceComponent": "AWS::SageMaker::InferenceComponent",
    "ScalableTarget": "AWS::ApplicationAutoScaling::ScalableTarget",
    "ScalingPolicy": "AWS::ApplicationAutoScaling::ScalingPolicy",
    "MetricAlarm": "AWS::CloudWatch::Alarm",
}
# Members of the API that the resources' schemas do not have (2026-11).
_MISSING = {"PrimaryContainer": ("AdditionalModelDataSources", "ContainerMetricsConfig")}
_DYNAMIC = "{{resolve:"  # CloudFormation interprets it in every text


def not_in_template(name: str) -> UsageError:
    """Return an error: CloudFormation has no property for something that the endpoint needs."""
    return UsageError(
        f"CloudFormation's AWS::SageMaker::Model has no {name}",
        hint="apply the requests instead: leave out --as cloudformation",
        code="NotInTemplate",
    )


def dynamic_reference(model: str) -> UsageError:
    """Return an error: a text of the image or its record would be replaced when the template is

    deployed.
    """
    return UsageError(
        f"the image or environment of {model} holds a dynamic reference of CloudFormation",
        hint="CloudFormation would put a secret or a parameter of the account in its place: "
        "apply the requests instead, and see where the text comes from",
        code="DynamicReference",
    )


def template_of(requests: Sequence[Request]) -> dict[str, Any]:
    """Return the template; raises `UsageError`."""
    resources: dict[str, Any] = {}
    names: dict[str, str] = {}  # of a resource → its logical id
    before = ""
    for request in requests:
        logical = _logical(request, resources)
        properties = dict(request.body)
        if request.resource == "Model":
            _refuse_missing(properties)
            if _DYNAMIC in json.dumps(properties["PrimaryContainer"]):
                raise dynamic_reference(request.name)
        if request.resource == "MetricAlarm":  # it calls the policy before it, by its ARN
            is_policy = (one.startswith(OF_POLICY) for one in properties["AlarmActions"])
            properties["AlarmActions"] = [
                {"Ref": before} if known else one
                for known, one in zip(is_policy, properties["AlarmActions"], strict=True)
            ]
        made: dict[str, Any] = {"Type": TYPES[request.resource]}
        # CloudFormation orders by references; names that are plain text are none.
        if request.resource == "EndpointConfig":
            made["DependsOn"] = [names[one] for one in names]
        elif before and request.resource != "MetricAlarm":  # which refers to it
            made["DependsOn"] = [before]
        made["Properties"] = properties
        resources[logical] = made
        names[request.name] = logical
        before = logical
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "An endpoint of Amazon SageMaker, rendered by packager",
        "Resources": resources,
    }


def _refuse_missing(properties: Mapping[str, Any]) -> None:
    for member, missing in _MISSING.items():
        found = next((name for name in missing if name in properties.get(member, {})), None)
        if found is not None:
            raise not_in_template(found)


def _logical(request: Request, taken: Mapping[str, Any]) -> str:
    """Return a logical id: the resource's kind, numbered from the second on."""
    count = sum(one["Type"] == TYPES[request.resource] for one in taken.values())
    return request.resource if not count else f"{request.resource}{count + 1}"
