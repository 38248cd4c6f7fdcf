"""What fits instead: the instance whose tokens cost the least, and checkpoints with fewer bits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import find_instance, instances
from packager.catalog.models import quantized_checkpoints
from packager.core.catalog import Accelerator
from packager.core.errors import PlanRejected
from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.units import GIB
from packager.estimate.performance.choice import Objective
from packager.estimate.performance.token_cost import token_cost
from packager.estimate.sizing.smaller import with_four_bits
from packager.models.architectures.profile import make_profile
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support import zoo
from tests.support.cases import cases_of
from tests.support.headers import (
    FAMILIES,
    LLAMA_3_70B,
    LOCAL_CPU,
    awq_model_of,
    facts_of,
    model_of,
    plan_of,
)

cases = cases_of(__file__)

R1 = "deepseek-ai/DeepSeek-R1"
FP8_MODEL = zoo.deepseek_v3()  # 90,000 tensors: made once


def cost(plan: Plan) -> float | None:
    return token_cost(plan, accelerator_of(plan.instance), Objective(goal="cost"))


def rejected(model: ModelFiles, instance: str | Instance, name: str = R1) -> PlanRejected:
    with pytest.raises(PlanRejected) as error:
        make_plan(
            facts_of(model, instance, nodes=1),
            PlannerServices(
                family=FAMILIES["vllm"],
                instances=instances(),
                accelerator_of=accelerator_of,
                smaller=quantized_checkpoints(name),
            ),
        )
    return error.value


def noted(error: PlanRejected) -> list[Finding]:
    return [one for one in error.findings if one.code == "smaller-checkpoint"]


def options_of(error: PlanRejected) -> list[str]:
    return [one.partition(" #")[0].strip() for one in error.nearest]


def test_the_least_for_tokens_comes_before_the_least_by_the_hour() -> None:
    error = rejected(FP8_MODEL, "ml.p5.48xlarge")

    assert options_of(error) == ["--instance ml.p6-b200.48xlarge", "--instance ml.g7e.48xlarge"]
    tokens, hours = error.nearest
    assert tokens.endswith(" per million tokens out, $131.02 an hour")
    assert hours.endswith(" per million tokens out, $41.43 an hour")


def test_a_plan_over_several_machines_tells_what_one_would_do() -> None:
    plan = make_plan(
        facts_of(FP8_MODEL, "ml.p5.48xlarge"),
        PlannerServices(
            family=FAMILIES["vllm"],
            instances=instances(),
            accelerator_of=accelerator_of,
            smaller=quantized_checkpoints(R1),
        ),
    )
    notes = {one.code: one.hint for one in plan.findings if one.severity == "note"}

    assert plan.nodes == 2
    assert notes["one-machine"].startswith("planned just now: --instance ml.p6-b200.48xlarge  # $")
    assert notes["smaller-checkpoint"] == "published: QuixiAI/DeepSeek-R1-AWQ (AWQ)"


def test_without_figures_the_price_of_an_hour_decides() -> None:
    with pytest.raises(PlanRejected) as error:
        make_plan(
            facts_of(FP8_MODEL, "ml.p5.48xlarge", nodes=1),
            PlannerServices(family=FAMILIES["vllm"], instances=instances()),
        )

    assert error.value.nearest == ("--instance ml.g7e.48xlarge  # $41.43 an hour",)


@cases("machines_of_the_same_cloud_are_suggested")
def test_machines_of_the_same_cloud_are_suggested(asked: str, moves_to: list[str]) -> None:
    assert options_of(rejected(FP8_MODEL, asked)) == [f"--instance {name}" for name in moves_to]


def test_equal_machines_of_one_price_are_planned_once() -> None:
    asked: list[str] = []

    def noting(instance: Instance) -> Accelerator:
        asked.append(instance.name)
        return accelerator_of(instance)

    with pytest.raises(PlanRejected):
        make_plan(
            facts_of(model_of(LLAMA_3_70B), "ml.g5.xlarge", quantize="none"),
            PlannerServices(family=FAMILIES["vllm"], instances=instances(), accelerator_of=noting),
        )

    assert "ml.g6e.12xlarge" in asked  # four L40S
    assert "ml.g6e.24xlarge" not in asked  # four L40S, dearer


def test_an_fp8_checkpoint_is_said_to_fit_with_four_bits() -> None:
    (note,) = noted(rejected(FP8_MODEL, "ml.p5.48xlarge"))

    assert note.severity == "note"
    assert note.message.startswith(
        "a checkpoint of the model with 4 bits a weight, about 332.9 GiB, would fit: TP "
    )
    assert note.hint == "published: QuixiAI/DeepSeek-R1-AWQ (AWQ)"


def test_a_checkpoint_that_nobody_listed_is_to_be_looked_for() -> None:
    (note,) = noted(rejected(FP8_MODEL, "ml.p5.48xlarge", name="acme/r1"))

    assert note.hint == "look for one in AWQ or GPTQ format"


@cases("offered")
def test_a_device_is_offered_checkpoints_that_it_has_kernels_for(
    on: str | None, flags: tuple[str, ...] | None, hints: list[str]
) -> None:
    processor = replace(LOCAL_CPU, host_bytes=600 * GIB, device_bytes=600 * GIB)
    machine = on or (replace(processor, flags=flags) if flags else processor)

    assert [one.hint for one in noted(rejected(FP8_MODEL, machine))] == hints


@pytest.mark.parametrize(
    ("model", "instance"),
    [
        (FP8_MODEL, "ml.g6e.48xlarge"),  # would not fit either
        (FP8_MODEL, "2xMI300X"),  # no kernel for 4-bit weights
        (awq_model_of(LLAMA_3_70B), "ml.g5.xlarge"),  # has 4 bits
        (model_of(LLAMA_3_70B), "ml.g5.12xlarge"),  # can be quantized: --quantize awq
    ],
    ids=["too large", "no kernel", "4 bits already", "16 bits"],
)
def test_checkpoints_that_would_not_help_are_not_named(model: ModelFiles, instance: str) -> None:
    assert noted(rejected(model, instance)) == []


def test_four_bits_are_reckoned_as_an_awq_checkpoint_has_them() -> None:
    """Llama-3-70B in FP8 has 70.6e9 bytes in its layers; as AWQ it has 39.8 GB."""
    fp8, _ = make_profile(model_of(LLAMA_3_70B))
    kept = fp8.outside_bytes
    fp8 = replace(fp8, weight_bytes=kept + (fp8.weight_bytes - kept) // 2)

    smaller = with_four_bits(fp8)
    assert round(smaller.weight_bytes / 1e9, 1) == round(
        awq_model_of(LLAMA_3_70B).weight_bytes / 1e9, 1
    )
    assert (smaller.weight_format, smaller.group_size) == ("w4a16", 128)


def test_tokens_have_no_cost_without_a_price_or_figures() -> None:
    model = model_of(LLAMA_3_70B)

    assert cost(plan_of(model, "8xH100")) is None
    unknown = replace(find_instance("ml.p5.48xlarge"), device_name="NVIDIA Something")
    assert cost(plan_of(model, unknown)) is None
    assert cost(plan_of(model, "ml.p5.48xlarge")) is not None
