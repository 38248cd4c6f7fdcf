"""DeploymentConfigs as steps."""

from __future__ import annotations

from typing import Any

import pytest

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.sagemaker.rollout import read_rollout
from tests.support.cases import cases


@cases("read", instances=1, wait_s=0, termination_s=0, alarms=())
def test_a_deployment_config_is_steps_of_traffic(
    policy: dict[str, Any] | None,
    instances: int,
    shares: list[float],
    wait_s: int,
    termination_s: int,
    most_s: int | None,
    alarms: tuple[str, ...],
) -> None:
    found = read_rollout(policy, instances)

    assert [round(share, 6) for share in found.shares] == shares
    assert (found.wait_s, found.termination_s, found.most_s) == (wait_s, termination_s, most_s)
    assert found.alarms == alarms


@cases("refused")
def test_a_deployment_config_that_is_none_is_refused(policy: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationRefused, match=said):
        read_rollout(policy, 1)
