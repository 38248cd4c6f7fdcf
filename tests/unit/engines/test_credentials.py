"""A password that is asked for by name would be in the image, its labels and the build record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.core.plan import Plan
from packager.plugins.tables import FAMILIES
from tests.support.engine_plans import plan_for

PLANS: dict[str, Plan] = {
    "vllm": plan_for("vllm"),
    "tgi": plan_for("tgi"),
    "sglang": plan_for("sglang"),
    "lmi": plan_for("lmi"),
    "lmi with TensorRT-LLM": plan_for("lmi-trt"),
    "neuron, Hugging Face": plan_for("neuron-hf"),
    "neuron, NxD Inference": plan_for("neuron-nxdi"),
}


def codes(plan: Plan, *options: tuple[str, str]) -> list[str]:
    family: Any = FAMILIES.find(plan.container.family).make()
    found = family.check(replace(plan, engine_options=options))
    return [finding.code for finding in found if finding.severity == "error"]


@pytest.mark.parametrize("family", PLANS)
@pytest.mark.parametrize("name", ["api-key", "API_KEY", "hf_token", "db-password"])
def test_a_credential_is_refused_by_every_family(family: str, name: str) -> None:
    assert "credential-in-image" in codes(PLANS[family], (name, "hidden"))


@pytest.mark.parametrize("family", PLANS)
def test_its_value_is_in_no_message_about_credentials(family: str) -> None:
    plan = replace(PLANS[family], engine_options=(("api-key", "hidden-value"),))
    loaded: Any = FAMILIES.find(plan.container.family).make()
    [found] = [one for one in loaded.check(plan) if one.code == "credential-in-image"]

    assert "hidden-value" not in found.message + found.hint
    assert "when the container starts" in found.hint


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_a_log_level_is_no_credential(family: str) -> None:
    assert "credential-in-image" not in codes(PLANS[family], ("uvicorn-log-level", "info"))
