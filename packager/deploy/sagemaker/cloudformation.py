"""A template of CloudFormation that makes the same endpoint as the requests do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packager.deploy.sagemaker.bodies import Request
from packager.errors import UsageError

TYPES = {
    "Model": "AWS::SageMaker::Model",
    "EndpointConfig": "AWS::SageMaker::EndpointConfig",
    "Endpoint": "AWS::SageMaker::Endpoint",
    "InferenceComponent": "AWS::SageMaker::InferenceComponent",
    "ScalableTarget": "AWS::ApplicationAutoScaling::ScalableTarget",
    "ScalingPolicy": "AWS::ApplicationAutoScaling::ScalingPolicy",
}
# Members of the API that the resources' schemas do not have (2026-11).
_MISSING = {"PrimaryContainer": ("AdditionalModelDataSources", "ContainerMetricsConfig")}


class NotInTemplate(UsageError):
    """CloudFormation has no property for something that the endpoint needs."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"CloudFormation's AWS::SageMaker::Model has no {name}",
            hint="apply the requests instead: leave out --as cloudformation",
        )


def template_of(requests: Sequence[Request]) -> dict[str, Any]:
    """Return the template; raises `NotInTemplate`."""
    resources: dict[str, Any] = {}
    names: dict[str, str] = {}  # of a resource → its logical id
    before = ""
    for request in requests:
        logical = _logical(request, resources)
        properties = dict(request.body)
        if request.resource == "Model":
            _refuse_missing(properties)
        made: dict[str, Any] = {"Type": TYPES[request.resource]}
        # CloudFormation orders by references; names that are plain text are none.
        if request.resource in ("EndpointConfig",):
            made["DependsOn"] = [names[one] for one in names]
        elif before:
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
            raise NotInTemplate(found)


def _logical(request: Request, taken: Mapping[str, Any]) -> str:
    """Return a logical id: the resource's kind, numbered from the second on."""
    count = sum(one["Type"] == TYPES[request.resource] for one in taken.values())
    return request.resource if not count else f"{request.resource}{count + 1}"
