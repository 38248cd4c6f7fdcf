"""SGLang's versions against everything that is rendered, beside corpus/plans_sglang.toml."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.containers import find_container
from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.engines.rules import plan_facts
from packager.engines.schema import shipped_versions
from packager.engines.sglang.family import SglangFamily
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support.engine_plans import AWQ, EAGLE3, FP8_AT_LOAD, NGRAM, PACKED, plan_for
from tests.support.headers import LLAMA_3_8B, facts_of, model_of


def errors(plan: Plan) -> list[str]:
    return [finding.code for finding in SglangFamily().check(plan) if finding.severity == "error"]


def of_version(version: str, **changes: Any) -> Plan:
    plan = plan_for("sglang", **changes)
    return replace(plan, container=replace(plan.container, engine_version=version))


@pytest.mark.parametrize("version", shipped_versions("sglang"))
def test_everything_that_a_plan_renders_is_in_every_versions_table(version: str) -> None:
    whole: dict[str, Any] = {
        "pp_degree": 2,
        "dp_degree": 2,
        "kv_dtype": "fp8",
        "max_prefill_tokens": 2048,
        "quantization": FP8_AT_LOAD,
    }

    assert errors(of_version(version, **whole)) == []
    for draft in (EAGLE3, NGRAM):
        assert errors(of_version(version, draft=draft, weights="mounted")) == []


@pytest.mark.parametrize("version", ["0.5.5", "0.5.8", "0.5.17"])
@pytest.mark.parametrize("pp_degree", [2, 4])
def test_a_pipeline_that_is_asked_for_is_planned_and_rendered(version: str, pp_degree: int) -> None:
    facts = facts_of(
        model_of(LLAMA_3_8B),
        "g5.12xlarge",
        family="sglang",
        pp_degree=pp_degree,
        tp_degree=4 // pp_degree,
    )
    container = find_container("sglang", "nvidia", version)
    plan = make_plan(replace(facts, container=container), PlannerServices(family=SglangFamily()))

    assert plan.pp_degree == pp_degree
    assert SglangFamily().render(plan, Artifacts(model=())).env["SM_SGLANG_PP_SIZE"] == str(
        pp_degree
    )
    assert errors(plan) == []


@pytest.mark.parametrize(
    ("quantization", "method"),
    [(None, ""), (PACKED, "compressed-tensors"), (FP8_AT_LOAD, "")],
    ids=["none", "made by packager", "while loading"],
)
def test_rules_know_the_weights_that_are_served(quantization: Any, method: str) -> None:
    assert plan_facts(plan_for("sglang", quantization=quantization))["quantization"] == method


def test_rules_know_weights_that_came_quantized() -> None:
    plan = plan_for("sglang", quantization=replace(AWQ, checkpoint_format=""))
    plan = replace(plan, profile=replace(plan.profile, quantization="awq"))

    assert plan_facts(plan)["quantization"] == "awq"
