from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.catalog.accelerators import accelerator_of
from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding, errors_in
from packager.core.plan import Plan
from packager.core.recipe import Recipe
from packager.core.serving import ServingConfig
from packager.core.shape import Shape
from packager.core.traits import EngineTraits
from packager.core.units import GIB, gib
from packager.engines.vllm.family import VllmFamily
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.recipe import make_recipe
from packager.pipeline.planning.services import PlannerServices
from tests.support.cases import cases_of, fields_of
from tests.support.headers import (
    FAMILIES,
    GEMMA_2_2B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LOCAL_CPU,
    TINY,
    awq_model_of,
    facts_of,
    model_of,
    plan_of,
)
from tests.support.quantized import arriving
from tests.support.shapes import plain

cases = cases_of(__file__)

NO_ARTIFACTS = Artifacts(model=())


def codes(findings: Iterable[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def rejection(*args: object, **asked: object) -> tuple[Finding, ...]:
    with pytest.raises(PlanRejected) as error:
        plan_of(*args, **asked)  # type: ignore[arg-type]
    return error.value.findings


MODELS = {
    "tiny": model_of(TINY),
    "tiny of org": model_of(TINY, name="org/tiny"),
    "tiny of two words": model_of(TINY, name="my model"),
    "tiny without heads": replace(model_of(TINY), config=TINY | {"num_attention_heads": 0}),
    "tiny in 32 bits": model_of(TINY, dtype="F32"),
    "tiny in awq": awq_model_of(TINY),
    "tiny in fp8": arriving("deepseek-fp8"),
    "llama-3-8b": model_of(LLAMA_3_8B),
    "llama-3-8b with whole heads": model_of(LLAMA_3_8B | {"num_key_value_heads": 32}),
    "llama-3-8b of 131072": model_of(LLAMA_3_8B | {"max_position_embeddings": 131072}),
    "llama-3-70b in awq": awq_model_of(LLAMA_3_70B),
    "gemma-2-2b": model_of(GEMMA_2_2B),
    "gemma-2-2b of two words": model_of(GEMMA_2_2B, name="two words"),
}
MACHINES = {
    "local": LOCAL_CPU,
    "local without bf16": replace(LOCAL_CPU, formats=frozenset({"fp16", "fp32"})),
}


@cases("planned", on="local", asked={}, expect={}, also=[], never=[])
def test_what_is_asked_is_planned(
    model: str,
    on: str,
    asked: dict[str, Any],
    expect: dict[str, Any],
    also: set[str],
    never: set[str],
) -> None:
    plan = plan_of(MODELS[model], MACHINES.get(on, on), **asked)

    found = set(codes(plan.findings))
    assert fields_of(plan, expect) == expect
    assert also <= found and not never & found


@cases("refused", model="tiny", on="local", asked={})
def test_everything_that_is_wrong_is_said_at_once_with_hints(
    model: str, on: str, asked: dict[str, Any], refused: list[str]
) -> None:
    errors = errors_in(rejection(MODELS[model], MACHINES.get(on, on), **asked))

    assert codes(errors) == refused
    assert all(error.hint for error in errors)


@pytest.mark.parametrize("model", [model_of(TINY), model_of(LLAMA_3_8B)], ids=["tiny", "8b"])
def test_a_larger_building_machine_gives_the_same_image(model: object) -> None:
    larger = replace(
        LOCAL_CPU,
        device_name="a far larger processor",
        vcpus=192,
        device_bytes=1024 * GIB,
        host_bytes=1024 * GIB,
        formats=frozenset({"fp16", "fp32"}),
    )
    smaller = replace(larger, vcpus=4, device_bytes=32 * GIB, host_bytes=32 * GIB)
    configs: list[ServingConfig] = [
        FAMILIES["vllm"].render(plan_of(model, machine), NO_ARTIFACTS)  # type: ignore[arg-type]
        for machine in (larger, smaller)
    ]

    assert configs[0] == configs[1]


def test_copies_use_the_devices_that_one_copy_leaves_over() -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "g5.12xlarge", family="lmi")

    assert plan.split.devices == 4
    assert sum("is predicted to give" in finding.message for finding in plan.findings) == 2


def test_8b_on_g5_xlarge_is_not_served_four_at_a_time() -> None:
    """The batch was how many full-length sequences fit, which no server asks for."""
    plan = plan_of(model_of(LLAMA_3_8B), "g5.xlarge")

    assert plan.shape.max_total_tokens == 8192
    assert 16 <= plan.shape.max_batch <= plan.typical_requests
    assert plan.full_requests < 4


def test_a_shape_that_does_not_fit_gets_one_that_does() -> None:
    asked = {"max_batch": 128, "max_total_tokens": 4096}
    *_, finding = rejection(model_of(LLAMA_3_8B), "c7i.8xlarge", **asked)

    assert finding.code == "does-not-fit"
    assert finding.hint == "lower max_batch to 67, or choose an instance with more memory"
    needed, usable = float(finding.data["needed_bytes"]), float(finding.data["usable_bytes"])
    assert f"a device needs {gib(needed)} (" in finding.message
    assert finding.message.endswith(f"and has {gib(usable)} usable")
    assert plan_of(model_of(LLAMA_3_8B), "c7i.8xlarge", **asked | {"max_batch": 67})


def test_a_batch_that_was_asked_for_reserves_no_full_sequences() -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "g5.xlarge", max_batch=32, max_total_tokens=8192)

    assert plan.shape == Shape(max_batch=32, max_input_tokens=7168, max_total_tokens=8192)
    assert plan.typical_requests >= 32
    assert "cache-too-small" not in codes(plan.findings)


def test_more_requests_than_the_cache_holds_are_kept_with_a_warning() -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "g5.xlarge", max_batch=200)

    (warning,) = [one for one in plan.findings if one.code == "cache-too-small"]
    assert plan.shape.max_batch == 200
    assert f"the cache holds {plan.typical_requests} of 872 tokens" in warning.message
    assert warning.hint.startswith(f"lower max_batch to {plan.typical_requests}, or")


def test_the_hint_of_a_single_long_request_fits_too() -> None:
    model = model_of(LLAMA_3_8B | {"max_position_embeddings": 131072})

    *_, finding = rejection(model, "g5.xlarge", max_batch=1, max_total_tokens=131072)

    assert finding.hint.startswith("lower max_batch to 1 and max_total_tokens to 32768, or")
    assert plan_of(model, "g5.xlarge", max_batch=1, max_total_tokens=32768)


def test_a_model_too_large_for_the_instance_gets_the_arithmetic_and_a_way_out() -> None:
    findings = rejection(model_of(LLAMA_3_70B), "g5.12xlarge", family="lmi")

    (error,) = errors_in(findings)
    assert "weights 32.9 GiB" in error.message
    assert "19.8 GiB usable" in error.message
    assert error.hint.startswith("use a 4-bit checkpoint (about 9.2 GiB of weights per device)")
    assert codes(findings).count("tp-does-not-fit") == 3


def test_a_share_without_room_for_context_and_graphs_gets_one_that_has_it() -> None:
    model = model_of(LLAMA_3_8B)
    asked = {"gpu_memory_utilization": 0.99, "max_batch": 256, "tp_degree": 1}

    (error,) = errors_in(rejection(model, "g6e.xlarge", **asked))
    said = re.search(r"lower gpu_memory_utilization to (0\.\d\d), or", error.hint)

    assert "beside that for CUDA's context and graphs" in error.message
    assert said is not None
    asked["gpu_memory_utilization"] = float(said[1])
    assert plan_of(model, "g6e.xlarge", **asked)


def test_bf16_weights_are_cast_for_a_gpu_without_it_and_the_user_is_told() -> None:
    plan = plan_of(model_of(TINY), "g4dn.xlarge")

    (warning,) = [f for f in plan.findings if f.severity == "warning"]
    assert plan.dtype == plan.precision == "fp16"
    assert warning.code == "dtype-cast"
    assert warning.message == "bfloat16 weights are cast to float16 on loading; T4 has no bf16"


def test_a_format_that_the_engine_has_no_measured_kernel_for_is_unproven_on_processors() -> None:
    assert "format-unproven" in codes(plan_of(arriving("ct-mxfp8"), "c7i.4xlarge").findings)


def test_an_image_for_other_devices_is_refused() -> None:
    facts = facts_of(model_of(TINY), "g5.xlarge")

    with pytest.raises(PlanRejected, match="the vllm image for nvidia does not run on local"):
        make_plan(replace(facts, instance=LOCAL_CPU), PlannerServices(family=FAMILIES["vllm"]))


def test_a_gpu_that_the_image_was_not_built_for_is_refused() -> None:
    (error,) = errors_in(rejection(model_of(TINY), "p3.2xlarge"))

    assert error.code == "device-too-old"
    assert error.message == (
        "V100 has compute capability 7.0; the vllm image is built for 7.5 and later"
    )


def test_what_the_family_says_is_part_of_the_plan() -> None:
    class Objecting:
        name = "objecting"

        def traits(self, container: ContainerFacts) -> EngineTraits:
            return EngineTraits(who=container.engine)

        def check(self, plan: Plan) -> Iterable[Finding]:
            return (Finding("error", "no", f"not at TP {plan.tp_degree}"),)

        def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:
            raise AssertionError("a rejected plan is not rendered")

    with pytest.raises(PlanRejected, match="not at TP 1"):
        make_plan(facts_of(model_of(TINY), LOCAL_CPU), PlannerServices(family=Objecting()))


def test_a_model_that_is_served_as_it_is_needs_no_steps() -> None:
    facts = facts_of(model_of(TINY), LOCAL_CPU)

    services = PlannerServices(family=FAMILIES["vllm"])

    recipe = make_recipe(make_plan(facts, services), facts, services)
    assert recipe == Recipe((), ("split-weights",))


@given(
    instance=st.sampled_from(["g5.xlarge", "g4dn.xlarge", "g5.12xlarge", "p4d.24xlarge", "local"]),
    max_batch=st.none() | st.integers(1, 10**6),
    max_input_tokens=st.none() | st.integers(1, 10**6),
    max_total_tokens=st.none() | st.integers(1, 10**6),
    tp_degree=st.none() | st.integers(1, 16),
)
def test_every_plan_that_is_made_fits_and_makes_sense(instance: str, **asked: int | None) -> None:
    where = LOCAL_CPU if instance == "local" else instance
    try:
        plan = plan_of(model_of(LLAMA_3_8B), where, **asked)  # type: ignore[arg-type]
    except PlanRejected as error:
        assert all(finding.hint for finding in errors_in(error.findings))
        return

    assert plan.budget.fits
    assert 0 < plan.shape.max_input_tokens < plan.shape.max_total_tokens <= 8192
    assert plan.replicas * plan.tp_degree <= plan.instance.devices
    for field in ("max_batch", "max_input_tokens", "max_total_tokens"):
        assert asked[field] in (None, getattr(plan.shape, field))


def test_a_prefill_that_does_not_fit_is_named_in_the_hint() -> None:
    with pytest.raises(PlanRejected) as rejected:
        plan_of(model_of(LLAMA_3_8B), "ml.g5.12xlarge", max_prefill_tokens=40_960_000)

    found = next(one for one in rejected.value.findings if one.code == "does-not-fit")
    assert found.hint == "lower max_prefill_tokens 40960000, or leave it out"


@cases("an_architecture_that_is_no_class_name_is_refused_briefly")
def test_an_architecture_that_is_no_class_name_is_refused_briefly(name: str) -> None:
    with pytest.raises(PlanRejected) as rejected:
        plan_of(model_of(LLAMA_3_8B | {"architectures": [name]}), "ml.g5.12xlarge")

    (found,) = rejected.value.findings
    assert found.code == "architecture-missing"
    assert len(found.message) < 200


def test_a_split_that_the_server_refuses_leaves_the_others() -> None:
    """The best split was taken by its speed, and the server's refusal of it ended the plan."""
    model = model_of(LLAMA_3_8B)
    best = plan_of(model, "g5.12xlarge").split

    class Refusing(VllmFamily):
        def check(self, plan: Plan) -> Iterator[Finding]:
            if plan.split == best:
                yield Finding("error", "heads-not-divisible", "such heads do not divide")
            yield from super().check(plan)

    plan = make_plan(
        facts_of(model, "g5.12xlarge"),
        PlannerServices(family=Refusing(), accelerator_of=accelerator_of),
    )

    assert plan.split != best
    assert plan.split.devices == 4
    (refused,) = [one for one in plan.rejected if one.code == "heads-not-divisible"]
    assert refused.reason == f"{best.words} is not possible: such heads do not divide"


@pytest.mark.parametrize(
    ("asked", "step"), [({}, 4096), ({"max_prefill_tokens": 16384}, 16384)], ids=["own", "asked"]
)
def test_a_compressed_cache_is_left_more_by_smaller_steps(asked: dict[str, Any], step: int) -> None:
    """vLLM 0.27 keeps two steps of every request: 8,192 tokens, as DeepSeek-V4's recipe has."""
    plan = plan_of(
        plain("deepseek-ai/DeepSeek-V4-Flash"),
        "p6-b200.48xlarge",
        family="vllm",
        tp_degree=8,
        **asked,
    )

    assert plan.max_prefill_tokens == step
    assert ("step-limited" in codes(plan.findings)) is (not asked)


def test_prefix_caching_costs_a_hybrid_model_its_states_twice() -> None:
    """vLLM caches prefixes of Qwen3.5 by default since 0.26: 3.2 MB a layer more a request."""
    own, without = (
        plan_of(
            plain("Qwen/Qwen3.5-27B"),
            "p5.48xlarge",
            family="vllm",
            tp_degree=1,
            pp_degree=1,
            **asked,
        ).budget
        for asked in ({}, {"engine_options": {"enable-prefix-caching": "false"}})
    )

    assert own.request_bytes(8192) - without.request_bytes(8192) == 48 * 784 * 4096
