"""The share of GPU memory and the element type that a request asks for, in every family."""

from __future__ import annotations

from typing import Any

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.cli.plugins.tables import FAMILIES
from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support.cases import cases_of
from tests.support.headers import GEMMA_2_2B, LLAMA_3_8B, LOCAL_CPU, facts_of, model_of

cases = cases_of(__file__, "memory")


LLAMA_8B = model_of(LLAMA_3_8B)
MODELS = {"llama": LLAMA_8B, "gemma2": model_of(GEMMA_2_2B)}


def planned(family: str, instance: Any = "g6.xlarge", **asked: Any) -> Plan:
    facts = facts_of(asked.pop("model", LLAMA_8B), instance, family=family, **asked)
    return make_plan(
        facts, PlannerServices(family=FAMILIES.find(family).make(), accelerator_of=accelerator_of)
    )


def written(plan: Plan) -> str:
    config: ServingConfig = (
        FAMILIES.find(plan.container.family).make().render(plan, Artifacts(model=()))
    )
    files = [file.data.decode() for file in config.files if not file.path.endswith(".py")]
    return "\n".join([*(f"{name}={value}" for name, value in config.env.items()), *files])


@cases("shares")
def test_the_share_of_memory_is_planned_with_and_rendered(
    family: str, said: str, share: float
) -> None:
    plan, usual = planned(family, gpu_memory_utilization=0.8), planned(family)

    assert plan.budget.usable_bytes / usual.budget.usable_bytes == pytest.approx(share, abs=1e-4)
    assert plan.typical_requests < usual.typical_requests
    assert said in written(plan)
    assert written(plan) != written(usual)


def test_a_share_that_is_tgis_own_needs_no_variable_and_a_larger_one_takes_its_room() -> None:
    usual = planned("tgi")

    assert written(planned("tgi", gpu_memory_utilization=0.9)) == written(usual)
    more = written(planned("tgi", gpu_memory_utilization=0.95))
    assert "TGI_WIGGLE_ROOM=0.95" in more and "CUDA_MEMORY_FRACTION" not in more


def test_sglang_is_given_the_very_share_that_was_asked_for() -> None:
    def static(plan: Plan) -> float:
        name = "SM_SGLANG_MEM_FRACTION_STATIC="
        (line,) = [line for line in written(plan).splitlines() if line.startswith(name)]
        return float(line.removeprefix(name))

    shares = [static(planned("sglang", gpu_memory_utilization=share)) for share in (0.8, 0.9)]
    assert shares == [0.8, 0.9]
    assert static(planned("sglang")) == 0.85


@cases("refused", model="llama")
def test_what_the_device_cannot_do_is_refused(
    family: str, instance: str, model: str, asked: dict[str, Any], code: str
) -> None:
    on = LOCAL_CPU if instance == "local" else instance
    with pytest.raises(PlanRejected) as caught:
        planned(family, on, model=MODELS[model], **asked)

    assert code in [finding.code for finding in errors_in(caught.value.findings)]


@cases("types")
def test_the_element_type_that_is_asked_for_is_rendered(family: str, said: str) -> None:
    plan = planned(family, dtype="float16")

    assert plan.dtype == "fp16"
    assert said in written(plan)
    assert "dtype-cast" in [finding.code for finding in plan.findings]


def test_auto_is_the_checkpoints_own_type() -> None:
    assert planned("vllm", dtype="auto") == planned("vllm")


@cases("tgi", method=None)
def test_tgi_plans_the_type_that_it_computes_quantized_weights_in(
    model: str, method: str | None, dtype: str, codes: list[str]
) -> None:
    """It refuses DTYPE beside QUANTIZE, and was planned with bf16 that nothing rendered."""
    plan = planned("tgi", "g6.12xlarge", model=MODELS[model], quantize=method)

    assert plan.dtype == dtype
    assert [found.code for found in plan.findings if found.code.startswith("dtype")] == codes
    assert ("DTYPE=" in written(plan)) == (method is None)


@cases("a_type_that_tgi_does_not_compute_awq_in_is_refused")
def test_a_type_that_tgi_does_not_compute_awq_in_is_refused(
    model: str, asked: str | None, words: str
) -> None:
    with pytest.raises(PlanRejected) as caught:
        planned("tgi", "g6.12xlarge", model=MODELS[model], quantize="awq", dtype=asked)

    found = errors_in(caught.value.findings)
    assert [words in finding.message for finding in found] == [True]
    assert [finding.code for finding in found] == ["dtype-unsupported"]


def test_vllm_computes_quantized_weights_in_the_type_that_is_asked() -> None:
    assert planned("vllm", "g6.12xlarge", quantize="awq").dtype == "bf16"
