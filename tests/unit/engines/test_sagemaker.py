from __future__ import annotations

from typing import Any

import pytest
from botocore.loaders import Loader

from packager.core.findings import errors_in
from packager.core.plan import Plan
from packager.engines.sagemaker import check_environment, limits
from tests.support.cases import cases, read_tables
from tests.support.engine_plans import plan_for
from tests.support.engine_rows import family_of

MOUNTED = plan_for("vllm", weights="mounted")


def found(env: dict[str, str], plan: Plan = MOUNTED) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in check_environment(plan, env)]


def test_the_limits_are_those_of_the_service() -> None:
    stated = read_tables(__file__)["limits"]
    assert {name: limits()[name] for name in stated} == stated
    assert limits()["total_bytes"] == 32 * 1024
    assert limits()["inference_component_entries"] == 16
    assert "botocore" in limits()["source"]


def test_botocores_model_still_says_the_same() -> None:
    shapes = Loader().load_service_model("sagemaker", "service-2")["shapes"]

    assert shapes["EnvironmentMap"]["max"] == limits()["entries"]
    assert shapes["EnvironmentKey"]["max"] == limits()["key_length"]
    assert shapes["EnvironmentKey"]["pattern"] == limits()["key_pattern"]
    assert shapes["EnvironmentValue"]["max"] == limits()["value_length"]


@cases("too_much", name="A", value="x")
def test_what_sagemaker_does_not_take_is_an_error(name: str, value: str, count: int | None) -> None:
    names = [f"{name}{number}" for number in range(count)] if count else [name]
    assert ("error", "sagemaker-limit") in found(dict.fromkeys(names, value))


def test_more_than_an_inference_component_takes_is_a_warning() -> None:
    assert found({f"A{number}": "x" for number in range(17)}) == [("warning", "sagemaker-limit")]
    assert found({f"A{number}": "x" for number in range(16)}) == []


def test_what_is_baked_or_runs_elsewhere_has_no_limit() -> None:
    env = {"A": "x" * 5000}

    assert found(env, plan_for("vllm")) == []
    assert found(env, plan_for("vllm-cpu", weights="mounted")) == []


@pytest.mark.parametrize("container", ["vllm", "tgi"], ids=["a name", "an option"])
def test_a_family_asks_whether_its_variables_fit(container: str) -> None:
    changes: dict[str, Any] = {
        "vllm": {"served_name": "n" * 1025},
        "tgi": {"engine_options": (("CORS_ALLOW_ORIGIN", "x" * 1025),)},
    }
    plan = plan_for(container, weights="mounted", **changes[container])

    assert "sagemaker-limit" in [one.code for one in errors_in(family_of(plan).check(plan))]
