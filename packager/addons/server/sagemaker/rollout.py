"""DeploymentConfig of UpdateEndpoint: in which steps requests move to the new containers.

Sources: Amazon SageMaker API reference and developer guide, "Blue/green deployments" (canaries of
at most a half, linear steps from a tenth to a half, the waits and their defaults).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused

ALARMS_IGNORED = "alarms are not evaluated here: no metric of CloudWatch is"
_Document = Mapping[str, Any]
_SMALLEST_STEP, _LARGEST_STEP = 10, 50  # percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """How requests move: the share that is reached by each step, and the wait behind it."""

    shares: tuple[float, ...] = (1.0,)
    wait_s: float = 0.0
    termination_s: float = 0.0  # until the old containers end
    most_s: float | None = None  # for all of it
    alarms: tuple[str, ...] = ()  # that would roll back


AT_ONCE = Rollout()


def read_rollout(policy: _Document | None, instances: int) -> Rollout:
    """Return the steps of a DeploymentConfig; raises `ValidationRefused`.

    `instances` is how many the new configuration asks for: steps may be counted in them.
    """
    if not policy:
        return AT_ONCE
    blue_green, rolling = policy.get("BlueGreenUpdatePolicy"), policy.get("RollingUpdatePolicy")
    if blue_green and rolling:
        raise ValidationRefused("Give either BlueGreenUpdatePolicy or RollingUpdatePolicy.")
    rollback = policy.get("AutoRollbackConfiguration") or {}
    alarms = tuple(one["AlarmName"] for one in rollback.get("Alarms") or ())
    if rolling:
        size = _share(rolling["MaximumBatchSize"], instances)
        return Rollout(
            shares=_linear(size),
            wait_s=rolling["WaitIntervalInSeconds"],
            most_s=rolling.get("MaximumExecutionTimeoutInSeconds"),
            alarms=alarms,
        )
    if not blue_green:
        return Rollout(alarms=alarms)
    routing = blue_green["TrafficRoutingConfiguration"]
    return Rollout(
        shares=_shares(routing, instances),
        wait_s=routing["WaitIntervalInSeconds"],
        termination_s=blue_green.get("TerminationWaitInSeconds", 0),
        most_s=blue_green.get("MaximumExecutionTimeoutInSeconds"),
        alarms=alarms,
    )


def _shares(routing: _Document, instances: int) -> tuple[float, ...]:
    kind = routing["Type"]
    if kind == "ALL_AT_ONCE":
        return (1.0,)
    member = "CanarySize" if kind == "CANARY" else "LinearStepSize"
    size = routing.get(member)
    if size is None:
        raise ValidationRefused(f"TrafficRoutingConfiguration of type {kind} needs {member}.")
    percent = size["Value"] if size["Type"] == "CAPACITY_PERCENT" else None
    least = 1 if kind == "CANARY" else _SMALLEST_STEP
    if percent is not None and not least <= percent <= _LARGEST_STEP:
        raise ValidationRefused(
            f"{member}.Value must be from {least} to {_LARGEST_STEP} percent, not {percent}."
        )
    share = _share(size, instances)
    return (share, 1.0) if kind == "CANARY" and share < 1 else _linear(share)


def _linear(share: float) -> tuple[float, ...]:
    steps = [share]
    while steps[-1] < 1:
        steps.append(min(1.0, round(steps[-1] + share, 6)))
    return tuple(steps)


def _share(size: _Document, instances: int) -> float:
    """Return a step's size as a share of the traffic; one container counts as all."""
    whole = 100 if size["Type"] == "CAPACITY_PERCENT" else max(1, instances)
    return float(min(1.0, size["Value"] / whole))
