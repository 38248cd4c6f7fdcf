"""Auto Scaling and alarms by boto3: kept, described and deleted, and told to do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.integration.addons.server.test_invocations import create_endpoint
from tests.support.aws_clients import aws_client
from tests.support.cases import cases, read_tables
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.hosting_server import Server, hosting
from tests.support.serve_services import config_body, model_body

TABLES = read_tables(__file__)


TARGET = TABLES["target"]
TRACKING = TABLES["tracking"]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Server]:
    with hosting(tmp_path, FakeContainers()) as found:
        found.ask("CreateModel", **model_body("one"))
        create_endpoint(found, config_body("one"))
        yield found


def test_targets_and_policies_are_kept_described_and_deleted(api: Server) -> None:
    scaling = aws_client("application-autoscaling", api.url)
    made = scaling.register_scalable_target(**TARGET, MinCapacity=0, MaxCapacity=2)
    scaling.register_scalable_target(**TARGET, MaxCapacity=4)
    for name, more in {
        "track": {
            "PolicyType": "TargetTrackingScaling",
            "TargetTrackingScalingPolicyConfiguration": TRACKING,
        },
        "step": {"PolicyType": "StepScaling"},
    }.items():
        put = scaling.put_scaling_policy(**TARGET, PolicyName=name, **more)
        assert put["PolicyARN"].endswith(f":policyName/{name}")

    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    (activity,) = scaling.describe_scaling_activities(ServiceNamespace="sagemaker")[
        "ScalingActivities"
    ]
    scaling.delete_scaling_policy(**TARGET, PolicyName="step")
    (policy,) = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]

    assert target["ScalableTargetARN"] == made["ScalableTargetARN"]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (0, 4)
    assert "nothing is scaled" in activity["StatusMessage"]
    assert policy["TargetTrackingScalingPolicyConfiguration"] == TRACKING
    scaling.deregister_scalable_target(**TARGET)
    found = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")
    assert found["ScalingPolicies"] == []
    with pytest.raises(scaling.exceptions.ObjectNotFoundException, match="No scalable target"):
        scaling.deregister_scalable_target(**TARGET)
    with pytest.raises(scaling.exceptions.ObjectNotFoundException, match="No scalable target"):
        scaling.put_scaling_policy(**TARGET, PolicyName="step")


@cases("a_target_that_is_none_is_refused")
def test_a_target_that_is_none_is_refused(api: Server, change: dict[str, Any]) -> None:
    scaling = aws_client("application-autoscaling", api.url)
    with pytest.raises(scaling.exceptions.ValidationException):
        scaling.register_scalable_target(**{**TARGET, "MinCapacity": 1, "MaxCapacity": 2, **change})


def test_an_endpoint_that_is_deleted_takes_its_targets_with_it(api: Server) -> None:
    scaling = aws_client("application-autoscaling", api.url)
    scaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=2)

    aws_client("sagemaker", api.url).delete_endpoint(EndpointName="e")

    found = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")
    assert found["ScalableTargets"] == []


def test_an_alarm_is_kept_described_and_deleted_and_says_that_it_never_goes_off(
    api: Server,
) -> None:
    alarms = aws_client("cloudwatch", api.url)
    alarm = TABLES["an_alarm_is_kept_described_and_deleted_and_says_that_it_never_goes_off"]
    alarms.put_metric_alarm(**alarm)
    alarms.put_metric_alarm(**{**alarm, "Threshold": 2.0})

    (found,) = alarms.describe_alarms(AlarmNames=["no-capacity"])["MetricAlarms"]

    assert {**alarm, "Threshold": 2.0}.items() <= found.items()
    assert found["StateValue"] == "INSUFFICIENT_DATA"
    assert "never evaluated" in found["StateReason"]
    alarms.delete_alarms(AlarmNames=["no-capacity"])
    assert alarms.describe_alarms()["MetricAlarms"] == []
    with pytest.raises(ClientError, match="no alarm 'no-capacity'"):
        alarms.delete_alarms(AlarmNames=["no-capacity"])
