"""What is tried for a goal."""

from __future__ import annotations

from typing import Any

import pytest

from packager.catalog.instances import find_instance
from packager.core.request import BuildRequest
from packager.estimate.performance.presets import PRESETS, Goal, candidates
from tests.support.cases import Case, cases_of

cases = cases_of(__file__)


def tried(instance: str, goal: Goal, *, quantized: bool = False, **asked: Any) -> list[str]:
    request = BuildRequest(model="m", instance="all", **asked)
    found = candidates(request, find_instance(instance), goal, quantized=quantized)
    return [candidate.options for candidate in found]


@cases("tried")
def test_what_is_tried_for_a_goal(case: Case) -> None:
    asked = case.get("asked", {})

    found = tried(case["instance"], case["goal"], quantized="quantized" in case, **asked)

    assert found == case["options"]


def test_another_goal_than_the_one_asked_for_is_named() -> None:
    request = BuildRequest(model="m", instance="all", quantize="none", goal="latency")
    found: list[Goal] = ["cost", "latency"]

    assert [
        candidates(request, find_instance("ml.g5.xlarge"), goal, quantized=False)[0].options
        for goal in found
    ] == ["--goal cost", ""]


@pytest.mark.parametrize("goal", PRESETS)
def test_what_was_asked_for_stays(goal: Goal) -> None:
    request = BuildRequest(
        model="m",
        instance="all",
        quantize="fp8",
        tp_degree=2,
        max_batch=16,
        family="lmi",
        goal=goal,
    )

    (only,) = candidates(request, find_instance("ml.g5.12xlarge"), goal, quantized=False)
    assert only.options == ""
    assert only.request.model_dump(exclude={"instance", "goal"}) == request.model_dump(
        exclude={"instance", "goal"}
    )
    assert (only.request.instance, only.request.goal) == ("ml.g5.12xlarge", goal)


def test_latency_tries_the_head_that_the_checkpoint_brings() -> None:
    request = BuildRequest(model="m", instance="all", quantize="none", tp_degree=4, max_batch=2)
    instance = find_instance("ml.g5.12xlarge")

    def options(goal: Goal, **asked: Any) -> list[str]:
        changed = request.model_copy(update=asked)
        found = candidates(changed, instance, goal, quantized=False, brings_draft=True)
        return [candidate.options for candidate in found]

    assert options("latency") == ["--goal latency", "--goal latency --draft mtp"]
    assert options("latency", draft="none") == ["--goal latency"]
    assert options("cost") == options("throughput") == [""]
