"""Requests of AWS's APIs, the names and tags that they share, and a user's patch of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from packager.addons.deploy.merging import MergeRules
from packager.addons.deploy.patches import bad_patch
from packager.addons.deploy.sagemaker.spec import SageMakerSpec

Body = Mapping[str, Any]
Service = Literal["sagemaker", "application-autoscaling", "cloudwatch"]

VARIANT = "AllTraffic"
OWNER_TAG = "packager:deployment"
MODEL_TAG = "packager:model"  # of a configuration: the name that clients send
SCALES_TAG = "packager:scales"  # of an endpoint: the resource that AWS scales
LONGEST_NAME = 63

# Elements of lists that a patch finds by these.
_RULES = MergeRules(
    keys={
        "ProductionVariants": ("VariantName",),
        "AdditionalModelDataSources": ("ChannelName",),
        "InstancePools": ("InstanceType",),
        "Alarms": ("AlarmName",),
        "Tags": ("Key",),
        "Dimensions": ("Name",),
    }
)
# What deployments are found by, and what names one of the others.
_KEPT = (
    *("ModelName", "EndpointConfigName", "EndpointName", "InferenceComponentName", "VariantName"),
    *("ResourceId", "ScalableDimension", "ServiceNamespace", "PolicyName", "AlarmName"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: an operation of a service, and its body."""

    service: Service = "sagemaker"
    operation: str
    body: Body

    @property
    def resource(self) -> str:
        """Return what it makes: `Model` of `CreateModel`."""
        words = self.operation
        for verb in ("Create", "Register", "Put", "Update"):
            words = words.removeprefix(verb)
        return words

    @property
    def name(self) -> str:
        """Return the name of what it makes."""
        key = {
            "ScalableTarget": "ResourceId",
            "ScalingPolicy": "PolicyName",
            "MetricAlarm": "AlarmName",
        }
        return str(self.body[key.get(self.resource, f"{self.resource}Name")])


def patched(operation: str, body: Body, wanted: SageMakerSpec) -> dict[str, Any]:
    """Return a body with what the user's patch changes of it; raise `UsageError`."""
    part = wanted.patch.below(operation)
    if not part:
        return dict(body)
    made = part.apply(body, _RULES)
    if _identity(made) != _identity(body):
        raise bad_patch(
            f"names in {operation}, its variants and the tag {OWNER_TAG} are what the deployment "
            "is found by: they stay",
            "give --name for another one",
        )
    return made


def named(name: str, body: Body) -> str:
    """Return a name that ends in a digest of the body."""
    data = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return f"{name[: LONGEST_NAME - 9].rstrip('-')}-{hashlib.sha256(data).hexdigest()[:8]}"


def component_name(name: str) -> str:
    """Return the name of an endpoint's component."""
    return f"{name[: LONGEST_NAME - 6].rstrip('-')}-model"


def tags_of(name: str, wanted: SageMakerSpec) -> list[dict[str, str]]:
    """Return tags: the deployment's, by which it is found and deleted, and the user's."""
    own = {OWNER_TAG: name}
    return [{"Key": key, "Value": value} for key, value in {**wanted.tags, **own}.items()]


def _identity(body: Body) -> tuple[Any, ...]:
    owners = [one for one in _rows(body, "Tags") if one.get("Key") == OWNER_TAG]
    variants = _rows(body, "ProductionVariants")
    own = [(one.get("VariantName"), one.get("ModelName")) for one in variants]
    return ([body.get(name) for name in _KEPT], owners, own)


def _rows(body: Body, name: str) -> list[Body]:
    found = body.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
