"""The check of health that a plan's image gets."""

from __future__ import annotations

from dataclasses import replace

from packager.pipeline.planning.health import health_check, start_period_s
from tests.support.cases import cases_of
from tests.support.engine_plans import plan_for

cases = cases_of(__file__)


@cases("each_server_is_asked_where_it_says_that_it_serves")
def test_each_server_is_asked_where_it_says_that_it_serves(image: str, path: str) -> None:
    found = health_check(plan_for(image), 8080)

    assert (found.path if found else "") == path
    if found:
        assert found.command[:4] == ("python3", "-I", "-S", "-c")
        assert f'"127.0.0.1",8080),{found.timeout_s - 1}' in found.command[4]
        assert f"GET {path} " in found.command[4]


@cases("a_larger_model_may_take_longer_to_start")
def test_a_larger_model_may_take_longer_to_start(weight_bytes: int, seconds: int) -> None:
    plan = plan_for("vllm")
    plan = replace(plan, profile=replace(plan.profile, weight_bytes=weight_bytes))

    assert start_period_s(plan) == seconds
