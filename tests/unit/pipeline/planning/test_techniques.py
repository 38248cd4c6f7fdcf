"""Techniques in plans: what they make of the memory, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import find_instance, instances
from packager.cli.plugins.tables import FAMILIES
from packager.core.artifact import Artifacts
from packager.core.catalog import Rule
from packager.core.errors import PlanRejected
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding, errors_in
from packager.core.image import BaseImage, Platform
from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.ports import ContainerFamily
from packager.core.serving import ServingConfig
from packager.core.shape import Shape
from packager.core.traits import EngineTraits
from packager.core.units import GIB
from packager.estimate.sizing.memory import MemoryInputs, make_budget
from packager.estimate.sizing.schemes import (
    QuantizeRequest,
    choose_quantization,
    parse_quantize,
    quantized_weight_bytes,
)
from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.request import DraftRequest, parse_draft
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.recipe import make_recipe
from packager.pipeline.planning.services import PlannerServices
from tests.support import heads, zoo
from tests.support.cases import as_type, cases_of, fields_of, read_tables
from tests.support.headers import (
    LLAMA_3_8B,
    LLAMA_3_70B,
    LOCAL_CPU,
    TINY,
    awq_model_of,
    facts_of,
    model_of,
)

cases = cases_of(__file__)

LLAMA_8B, LLAMA_70B = model_of(LLAMA_3_8B), model_of(LLAMA_3_70B)
MIXTRAL = zoo.mixtral()
LONG_8B = model_of(LLAMA_3_8B | {"max_position_embeddings": 131072})
LLAMA_2_7B = model_of(
    LLAMA_3_8B | {"intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 32000}
)


class Silent:
    """A family that takes everything, so that only the planner speaks."""

    name = "vllm"

    def traits(self, container: ContainerFacts) -> EngineTraits:
        family: ContainerFamily = FAMILIES.find(container.family).make()
        return family.traits(container)

    def check(self, plan: Plan) -> Iterable[Finding]:
        return ()

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:
        raise AssertionError("nothing is rendered here")


def plan_of(
    model: ModelFiles,
    instance: str | Instance,
    *,
    family: str | None = None,
    draft_files: ModelFiles | None = None,
    suggest: tuple[Instance, ...] = (),
    **asked: Any,
) -> Plan:
    facts = facts_of(model, instance, family=family, **asked)
    return make_plan(
        replace(facts, draft=draft_files), PlannerServices(family=Silent(), instances=suggest)
    )


def rejected(*args: Any, **asked: Any) -> PlanRejected:
    with pytest.raises(PlanRejected) as error:
        plan_of(*args, **asked)
    return error.value


def error_codes(*args: Any, **asked: Any) -> list[str]:
    return [finding.code for finding in errors_in(rejected(*args, **asked).findings)]


MODELS = {
    "llama-3-8b": LLAMA_8B,
    "llama-3-8b awq": awq_model_of(LLAMA_3_8B),
    "llama-2-7b": LLAMA_2_7B,
}
DRAFTS = {
    "tiny": model_of(TINY),
    "3 medusa heads": zoo.medusa(3, 4096, 128256),
    "3 medusa heads of version 2": zoo.medusa(3, 4096, 128256, version=2),
    "5 medusa heads": zoo.medusa(5, 4096, 128256),
    "3 narrow medusa heads": zoo.medusa(3, 2048, 128256),
    "3 medusa heads of few words": zoo.medusa(3, 4096, 32000),
    "eagle": heads.eagle(LLAMA_3_8B),
    "eagle3": heads.eagle3(LLAMA_3_8B),
    "eagle3 of speculators": heads.eagle3_of_speculators(LLAMA_3_8B),
}


@cases("planned", model="llama-3-8b", on="g5.12xlarge", brought="", expect={}, also=[])
def test_what_is_asked_is_planned(
    model: str, on: str, asked: dict[str, Any], brought: str, expect: dict[str, Any], also: set[str]
) -> None:
    plan = plan_of(MODELS[model], on, draft_files=DRAFTS.get(brought), **asked)

    assert fields_of(plan, expect) == expect
    assert also <= {finding.code for finding in plan.findings}


@cases("refused", model="llama-3-8b", on="g5.12xlarge", brought="")
def test_what_cannot_be_is_refused_with_a_hint(
    model: str, on: str, asked: dict[str, Any], brought: str, code: str
) -> None:
    error = rejected(MODELS[model], on, draft_files=DRAFTS.get(brought), **asked)

    first, *_ = errors_in(error.findings)
    assert first.code == code
    assert first.hint


def gigabytes(model: ModelFiles, method: str) -> float:
    """Decimal, as model sizes are."""
    facts = facts_of(model, "p5.48xlarge")
    profile, _ = make_profile(model)
    choice = choose_quantization(method, profile, facts.instance, facts.container)
    return round(quantized_weight_bytes(profile, choice.quantization) / 1e9, 1)


def test_llama_3_70b_has_141_gb_and_40_as_awq() -> None:
    assert round(LLAMA_70B.weight_bytes / 1e9, 1) == 141.1
    assert gigabytes(LLAMA_70B, "awq") == 39.8
    assert gigabytes(LLAMA_70B, "fp8") == 72.7


def test_what_is_planned_for_awq_is_what_an_awq_checkpoint_has() -> None:
    checkpoint = awq_model_of(LLAMA_3_70B).weight_bytes

    assert gigabytes(LLAMA_70B, "awq") == round(checkpoint / 1e9, 1)


def test_mixtral_has_93_gb_and_25_as_awq() -> None:
    assert round(MIXTRAL.weight_bytes / 1e9, 1) == 93.4
    assert gigabytes(MIXTRAL, "awq") == 24.7


@cases("70b_fits_four_a10g_quantized_with_the_room_that_others_computed")
def test_70b_fits_four_a10g_quantized_with_the_room_that_others_computed(
    method: str, least: int, most: int
) -> None:
    plan = plan_of(LLAMA_70B, "g5.12xlarge", family="lmi", quantize=method)

    assert plan.tp_degree == 4
    assert least < plan.budget.tokens_left(plan.shape.max_total_tokens) < most


def test_70b_does_not_fit_four_a10g_in_16_bits_and_what_does_is_said() -> None:
    error = rejected(LLAMA_70B, "g5.12xlarge", family="lmi", suggest=instances())

    assert [finding.code for finding in errors_in(error.findings)] == ["does-not-fit"]
    assert error.nearest[:2] == ("--quantize fp8", "--quantize awq")
    assert error.nearest[2].startswith("--instance ml.")


def test_mixtral_fits_four_a10g_with_awq_alone() -> None:
    """SEED 004: 8,000 tokens of prompt, 16,384 in all."""
    asked = {"max_input_tokens": 8000, "max_total_tokens": 16384, "family": "tgi"}

    plan = plan_of(MIXTRAL, "g5.12xlarge", quantize="awq", **asked)
    usable = 4 * plan.budget.usable_bytes / GIB

    assert plan.quantization is not None
    assert plan.quantization.checkpoint_format == "awq"  # TGI: QUANTIZE=awq
    assert round(MIXTRAL.weight_bytes / GIB, 1) == 87.0
    assert round(usable, 1) == 79.1
    assert round(4 * plan.budget.weights_bytes / GIB, 1) == 23.0
    assert error_codes(MIXTRAL, "g5.12xlarge", **asked) == ["does-not-fit"]


@cases("a_method_that_the_device_cannot_serve_is_refused")
def test_a_method_without_a_kernel_is_refused(instance: str, method: str, code: str) -> None:
    found = find_instance(instance)
    facts = facts_of(LLAMA_8B, "g5.12xlarge")
    profile, _ = make_profile(LLAMA_8B)

    (finding,) = choose_quantization(method, profile, found, facts.container).findings

    assert (finding.severity, finding.code) == ("error", code)
    assert finding.hint


@pytest.mark.parametrize("method", ["awq", "gptq", "fp8", "smoothquant"])
def test_on_processors_only_vllm_has_kernels(method: str) -> None:
    processor = find_instance("c7i.8xlarge")
    vllm = facts_of(LLAMA_8B, "g5.12xlarge").container
    profile, _ = make_profile(LLAMA_8B)

    served = choose_quantization(method, profile, processor, vllm)
    other = choose_quantization(
        method, profile, processor, facts_of(LLAMA_8B, "g5.12xlarge", family="tgi").container
    )

    assert served.findings == ()
    assert [found.code for found in other.findings] == ["quantize-unsupported"]


def test_options_of_a_method_change_what_it_costs() -> None:
    awq = plan_of(LLAMA_8B, "g5.12xlarge", quantize="awq").budget.weights_bytes
    smaller = plan_of(LLAMA_8B, "g5.12xlarge", quantize="awq,group=32").budget.weights_bytes
    symmetric = plan_of(LLAMA_8B, "g5.12xlarge", quantize="awq,symmetric").budget.weights_bytes

    assert symmetric < awq < smaller


def test_a_request_is_taken_apart() -> None:
    assert parse_quantize("mine:awq, symmetric,group=64") == QuantizeRequest(
        quantizer="mine", method="awq", options=(("group", "64"), ("symmetric", ""))
    )


def test_groups_forbid_degrees_that_the_whole_model_allows() -> None:
    """Llama-2-7B, 11008 wide: AWQ in groups of 128 runs at TP 1 and 2 only."""
    plan = plan_of(LLAMA_2_7B, "g5.12xlarge", quantize="awq", max_batch=1)

    assert [(one.what, one.code) for one in plan.rejected] == [("tp 4", "tp-not-allowed")]
    assert (
        "11008 / 4 inputs of model.layers.0.mlp.down_proj are not a multiple"
        in plan.rejected[0].reason
    )
    assert error_codes(LLAMA_2_7B, "g5.12xlarge", quantize="awq", tp_degree=4) == ["tp-not-allowed"]


def test_a_pipeline_helps_where_no_degree_does() -> None:
    """71 heads cannot be split: only a pipeline spreads Falcon-7B over four T4."""
    falcon = zoo.files(
        zoo.FALCON_7B,
        {
            f"transformer.h.{layer}.{name}.weight": ("BF16", (rows, columns))
            for layer in range(32)
            for name, rows, columns in read_tables(__file__)["falcon_shapes"]
        }
        | {"transformer.word_embeddings.weight": ("BF16", (65024, 4544))},
    )

    asked = {"max_batch": 8, "max_total_tokens": 2048}
    plan = plan_of(falcon, "g4dn.12xlarge", **asked)

    assert (plan.tp_degree, plan.pp_degree, plan.replicas) == (1, 2, 2)
    assert [one.what for one in plan.rejected][:3] == ["tp 2", "tp 4", "tp 1"]
    assert error_codes(falcon, "g4dn.12xlarge", family="lmi", **asked) == ["does-not-fit"]


def test_the_fullest_stage_holds_one_end_of_the_model() -> None:
    profile, _ = make_profile(LLAMA_8B)
    shape = Shape(max_batch=1, max_input_tokens=10, max_total_tokens=16)

    budget = make_budget(profile, find_instance("g5.12xlarge"), shape, 1, pp_degree=4)

    layers = profile.weight_bytes - profile.outside_bytes
    embedding = 128_256 * 4096 * 2  # in the first stage; the output layer is in the last
    assert budget.weights_bytes == profile.outside_bytes - embedding + layers // 4
    assert budget.kv_bytes_per_token == 131_072 // 4


def test_tokens_computed_at_once_cost_activations() -> None:
    usual = plan_of(LLAMA_8B, "g5.12xlarge").budget
    more = plan_of(LLAMA_8B, "g5.12xlarge", max_prefill_tokens=32768)

    assert more.max_prefill_tokens == 32768
    assert more.budget.activations_bytes > 2 * usual.activations_bytes
    assert error_codes(LLAMA_8B, "g5.12xlarge", max_prefill_tokens=4, max_batch=8) == [
        "prefill-too-small"
    ]


def test_a_window_frees_the_cache_behind_it() -> None:
    profile, _ = make_profile(zoo.config_only(zoo.GPT_OSS_20B))
    g5 = find_instance("g5.12xlarge")
    shape = Shape(max_batch=8, max_input_tokens=100_000, max_total_tokens=131_072)

    whole = make_budget(profile, g5, shape, 1).kv_bytes
    windowed = make_budget(
        profile, g5, shape, 1, MemoryInputs(engine="vllm", engine_version="0.27.1")
    ).kv_bytes

    assert 0.50 < windowed / whole < 0.51


def test_the_latent_of_deepseek_is_on_every_device() -> None:
    profile, _ = make_profile(zoo.config_only(zoo.DEEPSEEK_V3))
    shape = Shape(max_batch=1, max_input_tokens=10, max_total_tokens=16)

    assert make_budget(profile, find_instance("p5.48xlarge"), shape, 8).kv_bytes_per_token == 70_272


def test_a_state_of_linear_attention_is_counted_by_the_batch() -> None:
    profile, _ = make_profile(zoo.config_only(zoo.QWEN3_NEXT_80B))
    shape = Shape(max_batch=8, max_input_tokens=10, max_total_tokens=16)

    budget = make_budget(profile, find_instance("p5.48xlarge"), shape, 2)

    assert budget.state_bytes == 4 * profile.state_bytes


@cases("a_draft_is_read_as_it_is_written", expected=None, text=None)
def test_a_draft_is_read_as_it_is_written(text: str | None, expected: DraftRequest | None) -> None:
    assert parse_draft(text) == expected


def test_a_draft_model_brings_weights_and_a_cache() -> None:
    small = model_of(TINY | {"vocab_size": 128256})

    plan = plan_of(LLAMA_8B, "g5.12xlarge", draft="org/small", draft_files=small, tp_degree=2)

    assert plan.draft is not None
    assert (plan.draft.kind, plan.draft.speculative_tokens) == ("draft_model", 5)
    assert plan.budget.draft_weights_bytes == small.weight_bytes // 2
    assert plan.budget.draft_kv_bytes_per_token == 2048 // 2


def test_medusa_heads_of_version_1_are_whole_on_every_device() -> None:
    """296 MB for each head of Mixtral, on each device."""
    medusa = zoo.medusa(3, 4096, 32000)

    plan = plan_of(
        MIXTRAL, "g5.12xlarge", family="tgi", quantize="awq", draft="medusa:x", draft_files=medusa
    )

    assert plan.draft is not None
    assert (plan.draft.version, plan.draft.heads, plan.draft.speculative_tokens) == ("v1", 3, 3)
    assert plan.tp_degree > 1
    assert round(plan.budget.draft_weights_bytes / 3 / 1e6) == 296


def neuron_plan(model: ModelFiles, instance: str, **asked: Any) -> Plan:
    found = find_instance(instance)
    facts = facts_of(model, "g5.12xlarge", **asked)
    container = replace(facts.container, kind="neuron", least_compute_capability=0.0, targets=())
    return make_plan(
        replace(facts, instance=found, container=container), PlannerServices(family=Silent())
    )


def test_llama_3_8b_takes_all_24_cores_of_an_inf2_48xlarge() -> None:
    plan = neuron_plan(LLAMA_8B, "inf2.48xlarge")

    assert (plan.tp_degree, plan.replicas) == (24, 1)
    assert plan.shape == Shape(max_batch=8, max_input_tokens=7168, max_total_tokens=8192)
    assert "heads-padded" in [finding.code for finding in plan.findings]
    assert plan.budget.kv_bytes_per_token == 131_072 // 8  # one copied head each


def test_70b_does_not_fit_two_neuron_cores() -> None:
    with pytest.raises(PlanRejected, match=r"does not fit ml\.inf2\.xlarge"):
        neuron_plan(LLAMA_70B, "inf2.xlarge")


@cases("the_nearest_plan_is_one_that_fits")
def test_the_nearest_plan_is_one_that_fits(asked: dict[str, Any], nearest: str) -> None:
    found = rejected(LONG_8B, "g5.xlarge", **asked).nearest

    assert nearest in found
    for suggestion in found:
        plan_of(LONG_8B, "g5.xlarge", **(asked | options(suggestion)))


def options(suggestion: str) -> dict[str, Any]:
    """Read a suggestion as the command line does."""
    words = suggestion.split()
    return {
        name.removeprefix("--").replace("-", "_"): int(value) if value.isdecimal() else value
        for name, value in zip(words[::2], words[1::2], strict=True)
    }


def test_two_changes_are_tried_where_one_is_not_enough() -> None:
    long = model_of(LLAMA_3_70B | {"max_position_embeddings": 262144})
    asked = {"family": "lmi", "max_total_tokens": 262144}

    nearest = rejected(long, "g5.12xlarge", **asked).nearest

    ways = ("--quantize fp8 --max-total", "--quantize awq --max-total")
    assert all(one.startswith(ways) for one in nearest)
    assert len(nearest) == 2
    for suggestion in nearest:
        plan_of(long, "g5.12xlarge", **(asked | options(suggestion)))


def test_what_cannot_be_helped_gets_no_suggestion() -> None:
    assert rejected(LLAMA_70B, LOCAL_CPU, served_name="a", max_batch=64).nearest == ()


def test_nvlink_lets_latency_take_more_devices_for_a_copy_than_cost() -> None:
    latency, cost = (
        make_plan(
            facts_of(LLAMA_8B, "p4d.24xlarge", family="lmi", goal=goal),
            PlannerServices(family=Silent(), accelerator_of=accelerator_of),
        )
        for goal in ("latency", "cost")
    )

    assert latency.tp_degree > cost.tp_degree
    assert latency.shape.max_batch < cost.shape.max_batch


def test_methods_that_were_not_asked_for_are_passed_over_with_a_reason() -> None:
    plan = plan_of(LLAMA_2_7B, "g4dn.12xlarge", tp_degree=4, max_batch=1)

    assert [(one.what, one.reason) for one in plan.rejected] == [
        (
            f"quantize {method}",
            f"{method} at TP 4: it would cut through groups of 128 quantized weights: "
            "11008 / 4 inputs of model.layers.0.mlp.down_proj are not a multiple",
        )
        for method in ("awq", "gptq")
    ]


def test_a_method_without_a_kernel_is_passed_over_with_the_device_named() -> None:
    older = replace(find_instance("g4dn.12xlarge"), formats=frozenset({"fp16", "w4a16"}))
    plan = plan_of(LLAMA_2_7B, older, tp_degree=4, max_batch=1)

    assert ("quantize fp8", "T4 has no kernel for fp8") in [
        (one.what, one.reason) for one in plan.rejected
    ]


def test_rules_are_asked_even_of_what_does_not_fit() -> None:
    rule = as_type(read_tables(__file__)["ngram_rule"], Rule)
    facts = facts_of(LLAMA_70B, "g5.12xlarge", draft="ngram", quantize="int3", tp_degree=3)

    with pytest.raises(PlanRejected) as error:
        make_plan(facts, PlannerServices(family=Silent(), rules=(rule,)))

    codes = [finding.code for finding in errors_in(error.value.findings)]
    assert codes == read_tables(__file__)["all_errors"]
    assert error.value.nearest == ()  # --draft none alone leaves the others


def test_a_build_never_leaves_a_technique_out_without_a_word() -> None:
    facts = facts_of(LLAMA_8B, "g5.12xlarge", quantize="awq")
    services = PlannerServices(family=Silent())
    plan = make_plan(facts, services)
    base = BaseImage(reference="scratch", digest="", platform=Platform(), layers=(), config={})

    assert make_recipe(plan, facts, services).steps == ()
    with pytest.raises(PlanRejected, match="can be planned, not done yet"):
        make_recipe(plan, replace(facts, base=base), services)
