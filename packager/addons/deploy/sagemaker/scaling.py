"""Requests that scale an endpoint or its component: targets, policies, and the alarm that wakes.

Target tracking divides by the number of copies, so it never leaves 0.  A step policy does, when an
alarm on NoCapacityInvocationFailures calls it (AWS's developer guide, "Scale an endpoint to zero
instances", read 2026-11-30).
"""

from __future__ import annotations

from typing import Any

from packager.addons.deploy.sagemaker.requests import (
    VARIANT,
    Request,
    Service,
    component_name,
    patched,
    tags_of,
)
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.core.deployment import Deployment

SHARE_OF_BATCH = 0.7  # at which there is one more: starting takes minutes
SCALING: Service = "application-autoscaling"
OF_POLICY = "PolicyARN of "
WAKE_S = 60  # the least period of the metric


def scaling_requests(deployment: Deployment, wanted: SageMakerSpec) -> tuple[Request, ...]:
    """Return the requests in order; () without scaling."""
    target = wanted.target or (
        max(round(SHARE_OF_BATCH * deployment.max_batch, 1), 1.0) if deployment.max_batch else None
    )
    if not wanted.scales or target is None:
        return ()
    place = _place(deployment, wanted)
    made = [
        ("RegisterScalableTarget", _target(place, wanted)),
        ("PutScalingPolicy", _tracking(deployment, wanted, place, float(target))),
    ]
    found = [
        Request(service=SCALING, operation=name, body=patched(name, body, wanted))
        for name, body in made
    ]
    if wanted.least == 0:
        step = _step(deployment, place)
        found.append(Request(service=SCALING, operation="PutScalingPolicy", body=step))
        alarm = patched("PutMetricAlarm", _alarm(deployment, wanted), wanted)
        found.append(Request(service="cloudwatch", operation="PutMetricAlarm", body=alarm))
    return tuple(found)


def wake_name(name: str) -> str:
    """Return the name of the step policy, and of the alarm, that wake a deployment."""
    return f"{name}-wake"


def policy_arn(name: str) -> str:
    """Return a placeholder of the policy's ARN, which AWS creates with the policy."""
    return f"{OF_POLICY}{wake_name(name)}"


def _place(deployment: Deployment, wanted: SageMakerSpec) -> dict[str, Any]:
    if wanted.components:
        resource = f"inference-component/{component_name(deployment.name)}"
        dimension = "sagemaker:inference-component:DesiredCopyCount"
    else:
        resource = f"endpoint/{deployment.name}/variant/{VARIANT}"
        dimension = "sagemaker:variant:DesiredInstanceCount"
    return {
        "ServiceNamespace": "sagemaker",
        "ResourceId": resource,
        "ScalableDimension": dimension,
    }


def _target(place: dict[str, Any], wanted: SageMakerSpec) -> dict[str, Any]:
    return {**place, "MinCapacity": wanted.least, "MaxCapacity": wanted.max_instances}


def _tracking(
    deployment: Deployment, wanted: SageMakerSpec, place: dict[str, Any], target: float
) -> dict[str, Any]:
    metric = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    if wanted.components:
        metric = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
    return {
        "PolicyName": f"{deployment.name}-requests",
        **place,
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": target,
            "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
            "ScaleInCooldown": 600,  # as long as an instance takes to come back
            "ScaleOutCooldown": 60,
        },
    }


def _step(deployment: Deployment, place: dict[str, Any]) -> dict[str, Any]:
    return {
        "PolicyName": wake_name(deployment.name),
        **place,
        "PolicyType": "StepScaling",
        "StepScalingPolicyConfiguration": {
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Maximum",
            "Cooldown": WAKE_S,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}],
        },
    }


def _alarm(deployment: Deployment, wanted: SageMakerSpec) -> dict[str, Any]:
    component = {"Name": "InferenceComponentName", "Value": component_name(deployment.name)}
    return {
        "AlarmName": wake_name(deployment.name),
        "AlarmDescription": "A request came while no copy was there",
        "AlarmActions": [policy_arn(deployment.name)],
        "Namespace": "AWS/SageMaker",
        "MetricName": "NoCapacityInvocationFailures",
        "Statistic": "Sum",
        "Dimensions": [component],
        "Period": WAKE_S,
        "EvaluationPeriods": 1,
        "DatapointsToAlarm": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "missing",
        "Tags": tags_of(deployment.name, wanted),
    }
