"""Plans for AMD's GPUs: what vLLM serves there, and what is refused with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from packager.catalog.compatibility import rules
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance
from packager.core.artifact import Artifacts
from packager.core.catalog import matching
from packager.core.errors import PlanRejected
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.core.traits import UNKNOWN_ENGINE
from packager.estimate.performance.presets import Goal, candidates
from packager.estimate.sizing.precision import check_format, check_kv_dtype
from packager.pipeline.planning.stacking import situation_of
from tests.support.cases import cases_of
from tests.support.headers import (
    AWQ_G128,
    FAMILIES,
    LLAMA_3_8B,
    LLAMA_3_70B,
    awq_model_of,
    model_of,
    plan_of,
)
from tests.support.refusals import raises_code

cases = cases_of(__file__)

AMD = ["1xMI300X", "8xMI300X", "8xMI325X", "8xMI355X", "Standard_ND96isr_MI300X_v5"]


def codes(plan: Plan) -> list[str]:
    found = matching(rules(), situation_of(plan))
    return sorted(rule.id for rule in found)


@pytest.mark.parametrize("instance", AMD)
def test_vllm_serves_there_by_its_command_line(instance: str) -> None:
    plan = plan_of(model_of(LLAMA_3_8B), instance)

    assert (plan.container.family, plan.container.variant) == ("vllm", "rocm")
    assert plan.container.default_base.startswith("docker.io/vllm/vllm-openai-rocm:v")
    assert (plan.dtype, plan.precision) == ("bf16", "bf16")
    config = FAMILIES["vllm"].render(plan, Artifacts(model=()))
    assert config.entrypoint[0] == "python3"
    assert not [name for name in config.env if name.startswith("SM_VLLM")]


def test_70b_in_bf16_fits_one_mi300x() -> None:
    plan = plan_of(model_of(LLAMA_3_70B), "1xMI300X")

    assert plan.budget.device_bytes == 206_141_652_992  # as rocm-smi says
    assert plan.budget.weights_bytes == 141_107_412_992
    assert plan.budget.fits


def test_nothing_was_started_there_and_the_plan_says_so() -> None:
    assert codes(plan_of(model_of(LLAMA_3_8B), "8xMI300X")) == ["amd-unproven"]
    assert "amd-unproven" not in codes(plan_of(model_of(LLAMA_3_8B), "8xH100"))


@pytest.mark.parametrize("family", ["lmi", "tgi", "sglang", "neuron"])
def test_families_without_an_image_are_refused(family: str) -> None:
    with raises_code("FamilyNotForDevice") as error:
        find_container(family, "amd")

    assert error.value.message == f"serving family {family!r} has no image for amd devices"
    assert error.value.hint == "use 'vllm', or leave the family out"


def test_fp8_is_quantized_for_its_own_arithmetic() -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "1xMI300X", quantize="fp8")

    assert plan.quantization is not None
    assert plan.quantization.scheme == "W8A8-FP8"
    assert codes(plan) == ["amd-unproven"]


@cases("no_kernel")
def test_what_it_has_no_kernel_for_is_refused(is_awq: bool, method: str | None, what: str) -> None:
    model = awq_model_of(LLAMA_3_8B | AWQ_G128) if is_awq else model_of(LLAMA_3_8B)
    with pytest.raises(PlanRejected) as error:
        plan_of(model, "1xMI300X", quantize=method)

    assert f"MI300X has no kernel for {what}" in [one.message for one in error.value.findings]


def test_gpt_oss_and_an_fp8_cache_are_served() -> None:
    machine = find_instance("8xMI355X")

    class Profile:
        weight_format = "mxfp4"
        quantization = "mxfp4"
        other_formats = ()

    profile: Any = Profile()
    assert check_format(profile, machine, UNKNOWN_ENGINE) == ()
    assert check_kv_dtype("fp8", machine) == ()


@cases("tried")
def test_goals_try_what_the_device_has_kernels_for(
    instance: str, goal: Goal, methods: set[str]
) -> None:
    request = BuildRequest(model="m", instance="all")
    found = candidates(request, find_instance(instance), goal, quantized=False)

    assert {candidate.changes.get("quantize") or "" for candidate in found} == methods


def test_an_image_for_amd64_is_not_planned_for_grace() -> None:
    with pytest.raises(PlanRejected) as error:
        plan_of(model_of(LLAMA_3_8B), "ml.p6e-gb200.36xlarge")

    assert [one.code for one in error.value.findings if one.severity == "error"] == [
        "container-not-for-processor"
    ]
    assert error.value.findings[0].message == (
        "ml.p6e-gb200.36xlarge needs an image for linux/arm64, and the vllm "
        "0.27.1-gpu-py312-cu130-ubuntu22.04-sagemaker image is known for linux/amd64 alone"
    )
