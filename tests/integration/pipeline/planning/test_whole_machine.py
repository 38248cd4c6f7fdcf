"""Default plans of released models on whole machines: no device idles without a reason."""

from __future__ import annotations

import pytest

from packager.catalog.instances import find_instance
from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from tests.unit.pipeline.planning.test_whole_machine import CASES, default_plan

# What no family holds there on one machine, nor on four with a fast network.
TOO_LARGE = {
    ("405b", "ml.g5.12xlarge"),
    ("405b", "ml.inf2.48xlarge"),
    ("deepseek", "ml.g5.12xlarge"),
    ("70b", "ml.g5.12xlarge"),
    ("mixtral", "ml.g5.12xlarge"),
}


@pytest.mark.parametrize(("name", "instance", "family"), CASES)
def test_no_device_idles_without_a_reason(name: str, instance: str, family: str) -> None:
    plan = default_plan(name, instance, family)
    if isinstance(plan, PlanRejected):
        assert [one.code for one in errors_in(plan.findings)] == ["does-not-fit"]
        assert (name, instance) in TOO_LARGE
        return

    assert (name, instance) not in TOO_LARGE
    idle = find_instance(instance).devices * plan.nodes - plan.split.devices
    said = [one.message for one in plan.findings if one.code == "devices-idle"]
    assert bool(said) == (idle > 0)
    assert all(f"{idle} stay idle: " in message for message in said)
