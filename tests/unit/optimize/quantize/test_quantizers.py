"""What quantizing is planned as: options, what engines load, memory, formats, existing weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from packager.catalog.compatibility import rules
from packager.catalog.containers import find_container
from packager.cli.plugins.tables import FAMILIES
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import errors_in
from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.recipe import Step
from packager.core.request import BuildRequest
from packager.core.samples import Sample, Samples
from packager.core.tool import ToolFacts
from packager.core.units import GIB
from packager.estimate.sizing.schemes import quantized_weight_bytes
from packager.models.architectures.profile import make_profile
from packager.optimize.keys.documents import QuantizedCheckpointKey
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.recipe import make_recipe
from packager.pipeline.planning.services import PlannerServices
from tests.support import zoo
from tests.support.cases import cases_of
from tests.support.headers import (
    LLAMA_3_8B,
    LOCAL_CPU,
    TINY,
    awq_model_of,
    facts_of,
    model_of,
    tensor,
)
from tests.support.quantized import arriving

cases = cases_of(__file__)

TOOL = ToolFacts(name="llmcompressor", worker="a" * 64, requirements="b" * 64, packages={})
TEXTS = Samples(source="texts", samples=tuple(Sample(text=f"text {n}") for n in range(8)))
QUANTIZER = LlmCompressorQuantizer()
AMX = ("avx512_bf16", "amx_tile")  # beside what LOCAL_CPU has
DYNAMIC: Mapping[str, Any] = {"num_bits": 8, "type": "float", "dynamic": True}


def facts(
    model: ModelFiles, instance: str | Instance, family: str | None = None, **asked: Any
) -> Facts:
    found = facts_of(model, instance, family=family, **asked)
    return replace(found, samples=TEXTS, tools={"llmcompressor": TOOL})


def on_lmi(model: ModelFiles, version: str, **asked: Any) -> Facts:
    """The facts with an LMI container, on Hopper."""
    container = find_container("lmi", "nvidia", version)
    return replace(facts(model, "ml.p5.48xlarge", "lmi", **asked), container=container)


def planned(given: Facts) -> Plan:
    family = FAMILIES.find(given.container.family).make()
    return make_plan(given, PlannerServices(family=family, rules=rules(), quantizer=QUANTIZER))


def errors(model: ModelFiles, instance: str | Instance, **asked: Any) -> list[str]:
    try:
        planned(facts(model, instance, **asked))
    except PlanRejected as rejected:
        assert all(finding.hint for finding in errors_in(rejected.findings))
        return [finding.code for finding in errors_in(rejected.findings)]
    return []


def step_of(model: ModelFiles, instance: str | Instance, **asked: Any) -> Step:
    given = facts(model, instance, **asked)
    return QUANTIZER.step(given, planned(given))


def compressed(layout: str, weights: Mapping[str, Any], **more: Any) -> ModelFiles:
    groups = {"group_0": {"weights": weights, "input_activations": more.pop("inputs", None)}}
    stated = {"quant_method": "compressed-tensors", "format": layout, "config_groups": groups}
    return model_of(TINY | {"quantization_config": stated | more})


STATIC = arriving("ct-fp8-static")
LARGE = replace(LOCAL_CPU, host_bytes=512 * GIB, device_bytes=512 * GIB)
PROCESSORS = {
    "local": LOCAL_CPU,
    "local with AMX": replace(LOCAL_CPU, flags=(*LOCAL_CPU.flags, *AMX)),
    "large": LARGE,
    "large with AMX": replace(LARGE, flags=(*LARGE.flags, *AMX)),
}
MODELS = {
    "tiny": model_of(TINY),
    "tiny that sees": model_of(TINY | {"architectures": ["Qwen3_5ForCausalLM"]}),
    "mixtral": zoo.mixtral(),
}


@cases("whatever_is_asked_is_planned_or_refused")
def test_whatever_is_asked_is_planned_or_refused(
    model: str, on: str, asked: dict[str, Any], refused: list[str]
) -> None:
    assert errors(MODELS[model], PROCESSORS.get(on, on), **asked) == refused


@cases("the_device_decides_whether_activations_are_quantized_and_the_key_says_so", activations=None)
def test_the_device_decides_whether_activations_are_quantized_and_the_key_says_so(
    method: str, instance: str, scheme: str, activations: tuple[str, str] | None
) -> None:
    given = facts(model_of(TINY), instance, quantize=method)
    plan = planned(given)
    key = QUANTIZER.step(given, plan).key

    assert plan.quantization is not None
    assert plan.quantization.scheme == scheme
    assert isinstance(key, QuantizedCheckpointKey)
    told = key.precision.activations
    assert (told and (told.dtype, told.granularity)) == activations
    assert key.calibration is None


@cases("no_kernel")
def test_devices_without_a_kernel_for_a_format_are_refused_and_told_of_another(
    method: str, on: str
) -> None:
    with pytest.raises(PlanRejected) as rejected:
        planned(facts(model_of(TINY), PROCESSORS.get(on, on), quantize=method))

    (error,) = errors_in(rejected.value.findings)
    assert error.code == "quantize-unsupported"
    assert f"has no kernel for {method}" in error.message
    assert error.hint == "`--quantize awq`, or another instance"


@cases("engines_older_than_a_format_are_refused_with_the_first_that_reads_it")
def test_engines_older_than_a_format_are_refused_with_the_first_that_reads_it(
    method: str, version: str, expected: str
) -> None:
    asked = on_lmi(model_of(TINY), version, quantize=method)
    if not expected:
        assert planned(asked).quantization
        return
    with pytest.raises(PlanRejected) as rejected:
        planned(asked)

    assert any(expected in error.message for error in errors_in(rejected.value.findings))


@cases("experts_need_an_engine")
def test_experts_of_a_form_need_an_engine(method: str, version: str, codes: list[str]) -> None:
    asked = on_lmi(zoo.mixtral(), version, quantize=method)
    try:
        found = errors_in(planned(asked).findings)
    except PlanRejected as rejected:
        found = errors_in(rejected.findings)

    assert [finding.code for finding in found] == codes


@cases("scales_of_the_formats_are_counted")
def test_scales_of_the_formats_are_counted(method: str, size: int) -> None:
    plan = planned(facts(model_of(LLAMA_3_8B), "ml.p5.48xlarge", quantize=method))

    assert quantized_weight_bytes(plan.profile, plan.quantization) == pytest.approx(size, rel=1e-4)


def test_autoround_is_told_its_iterations_and_the_key_says_so() -> None:
    def made(asked: str) -> tuple[Any, str]:
        step = step_of(model_of(TINY), "ml.g5.xlarge", quantize=asked)
        return step.parameters["iterations"], str(step.key)

    usual, few = made("autoround"), made("autoround,iters=50")

    assert (usual[0], few[0]) == (200, 50)
    assert "'iterations': '200'" in usual[1]
    assert "'iterations': '50'" in few[1]


@pytest.mark.parametrize(("outputs", "codes"), [(48, ["quantize-group"]), (64, []), (576, [])])
def test_a_matrix_that_autoround_would_pass_over_is_refused(outputs: int, codes: list[str]) -> None:
    """It would stay in 16 bits, and engines fuse it with others that have 4."""
    latent = tensor("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", "BF16", (outputs, 256))
    model = replace(model_of(TINY), tensors=(*model_of(TINY).tensors, latent))

    assert errors(model, "ml.g5.xlarge", quantize="autoround") == codes
    assert errors(model, "ml.g5.xlarge", quantize="gptq") == []


def test_each_iteration_of_autoround_costs_as_much_as_the_last() -> None:
    def products(asked: str) -> float:
        needs = step_of(model_of(TINY), "ml.g5.xlarge", quantize=asked).needs
        return sum(work.matmul_flops for work in needs.work)

    none = products("gptq")
    few, many = products("autoround,iters=10"), products("autoround,iters=100")

    assert many - none == pytest.approx(10 * (few - none))
    assert few > none


@pytest.mark.parametrize("method", ["smoothquant", "smoothquant,gptq"])
def test_latent_attention_in_8_bit_integers_is_not_loaded_on_processors(method: str) -> None:
    large = replace(LOCAL_CPU, host_bytes=2048 * GIB, device_bytes=2048 * GIB)
    left_out = ("re:.*\\.experts\\..*",)
    source = zoo.deepseek_v3()
    plain = replace(
        source,
        config={k: v for k, v in source.config.items() if k != "quantization_config"},
        tensors=tuple(
            one._replace(dtype="BF16", size=2 * math.prod(one.shape))
            for one in source.tensors
            if not one.name.endswith("_scale_inv")
        ),
    )
    planned = partial(errors, plain, large, quantize_ignore=left_out)

    assert planned(quantize=method) == ["cpu-int8-latent"]
    assert planned(quantize="fp8") == []


def test_a_checkpoint_with_static_scales_is_refused_like_one_that_would_be_made() -> None:
    assert errors(STATIC, LOCAL_CPU) == ["cpu-fp8-static"]
    assert errors(STATIC, "ml.g6.xlarge") == []


ARRIVED = {
    "awq": awq_model_of(TINY),
    "static": STATIC,
    "block": compressed("float-quantized", {**DYNAMIC, "strategy": "block"}, inputs=DYNAMIC),
    "cache": compressed("float-quantized", DYNAMIC, inputs=DYNAMIC, kv_cache_scheme=DYNAMIC),
}


@cases("arrived", form="", stated={})
def test_quantized_checkpoints_are_recognised_and_never_quantized_twice(
    form: str, stated: dict[str, Any], method: str, options: tuple[str, ...]
) -> None:
    model = ARRIVED.get(form) or model_of(TINY | {"quantization_config": stated})
    profile, _ = make_profile(model)

    assert profile.quantization == method
    assert profile.quantization_options == options
    assert profile.linear_parameters == 0
    assert "already-quantized" in errors(model, "ml.g6.xlarge", quantize="smoothquant")


def test_awq_is_written_in_its_own_format_where_the_engine_reads_only_that() -> None:
    def written(family: str, version: str) -> str:
        given = facts(model_of(LLAMA_3_8B), "ml.g5.xlarge", family, quantize="awq")
        older = replace(given.container, engine_version=version)
        return str(
            QUANTIZER.step(given, planned(replace(given, container=older))).parameters[
                "checkpoint_format"
            ]
        )

    assert written("tgi", "3.3.6") == "awq"
    assert written("lmi", "0.7.3") == "awq"
    assert written("lmi", "0.8.5") == "compressed-tensors"
    assert written("vllm", "0.26.0") == "compressed-tensors"


def test_a_request_says_what_the_step_is_told() -> None:
    request = BuildRequest(
        model="./model",
        instance="ml.g5.xlarge",
        quantize="awq,group=64",
        quantize_ignore=("re:.*layers.0.*",),
        calibration="texts.jsonl",
        calibration_samples=128,
        calibration_tokens=1024,
        calibration_seed=7,
    )
    given = replace(facts(model_of(LLAMA_3_8B), "ml.g5.xlarge"), request=request)

    step = QUANTIZER.step(given, planned(given))

    assert step.parameters["group_size"] == 64
    assert (step.parameters["max_tokens"], step.parameters["seed"]) == (1024, 7)
    assert "re:.*layers.0.*" in step.parameters["ignore"]


@pytest.mark.parametrize("method", ["gptq", "autoround"])
def test_a_method_that_measures_needs_texts(method: str) -> None:
    given = replace(facts(model_of(TINY), "ml.g6.xlarge", quantize=method), samples=None)

    with pytest.raises(PlanRejected) as rejected:
        planned(given)

    assert [found.code for found in errors_in(rejected.value.findings)] == ["calibration-missing"]


def test_quantized_weights_have_their_place_in_a_tree() -> None:
    given = facts(model_of(TINY), "ml.g6.xlarge", quantize="fp8", weights="mounted")

    planned(replace(given, writes_tree=True))


def test_the_worker_is_told_what_stays_as_it_is_besides_what_structure_says() -> None:
    step = step_of(
        model_of(TINY), "ml.g6.xlarge", quantize="fp8", quantize_ignore=("model.layers.0.mlp",)
    )

    assert step.parameters["ignore"] == ["model.layers.0.mlp"]


def test_large_weights_may_stay_on_disk_while_they_are_quantized() -> None:
    needs = step_of(model_of(LLAMA_3_8B), "ml.g5.xlarge", quantize="fp8").needs

    assert 24e9 < needs.memory_bytes < 30e9  # 16.1 GB of weights, 9.1 GB of result
    assert needs.least_memory_bytes < 0.5 * needs.memory_bytes


@cases("memory_beyond_rounding")
def test_methods_that_measure_hold_more_of_a_layer_than_rounding(method: str, least: float) -> None:
    held = step_of(model_of(LLAMA_3_8B), "ml.g5.xlarge", quantize=method).needs
    rounded = step_of(model_of(LLAMA_3_8B), "ml.g5.xlarge", quantize="rtn").needs

    assert held.memory_bytes - rounded.memory_bytes > least


def test_groups_that_cut_one_matrix_are_refused_by_its_header_with_a_size_that_fits() -> None:
    latent = tensor("model.layers.0.self_attn.q_b_proj.weight", "BF16", (1024, 96))
    model = replace(model_of(TINY), tensors=(*model_of(TINY).tensors, latent))

    with pytest.raises(PlanRejected) as rejected:
        planned(facts(model, "ml.g6.xlarge", quantize="awq"))

    (error,) = errors_in(rejected.value.findings)
    assert error.code == "quantize-group"
    assert "the 96 inputs of model.layers.0.self_attn.q_b_proj" in error.message
    assert error.hint == "use `group=32`"
    assert errors(model, "ml.g6.xlarge", quantize="awq,group=32") == []
    assert errors(model, "ml.g6.xlarge", quantize="smoothquant") == []


def test_a_method_with_one_group_size_is_not_told_to_take_another() -> None:
    odd = tensor("model.layers.0.self_attn.q_b_proj.weight", "BF16", (1024, 24))
    model = replace(model_of(TINY), tensors=(*model_of(TINY).tensors, odd))

    with pytest.raises(PlanRejected) as rejected:
        planned(facts(model, "ml.g6.xlarge", quantize="nvfp4"))

    (error,) = errors_in(rejected.value.findings)
    assert (error.code, error.hint) == ("quantize-group", "use `--quantize fp8`")


@pytest.mark.parametrize("name", ["model.layers.4.eh_proj.weight", "visual.blocks.0.proj.weight"])
def test_matrices_that_stay_as_they_are_may_have_any_size(name: str) -> None:
    """TINY has 4 layers; the next one is for drafting only."""
    odd = tensor(name, "BF16", (256, 96))
    model = replace(model_of(TINY), tensors=(*model_of(TINY).tensors, odd))

    assert errors(model, "ml.g6.xlarge", quantize="awq") == []


def test_the_worker_is_told_what_scales_move_out_of_and_the_key_says_so() -> None:
    step = step_of(model_of(TINY), "ml.g6.xlarge", quantize="smoothquant")

    assert step.parameters["loader"] == "causal-lm"
    assert (step.parameters["folds"], step.parameters["unfolded"]) == ("norms", [])
    assert step.key is None or "norms" in str(step.key)
    assert "folds" not in step_of(model_of(TINY), "ml.g6.xlarge", quantize="fp8").parameters


@cases("what_an_interruption_leaves_is_in_the_disk_estimate")
def test_what_an_interruption_leaves_is_in_the_disk_estimate(asked: str, kept: float) -> None:
    given = facts(model_of(LLAMA_3_8B), "ml.g6.xlarge", family="vllm", quantize=asked)
    plan = planned(given)

    needs = QUANTIZER.step(given, plan).needs

    assert plan.quantization is not None
    result = quantized_weight_bytes(plan.profile, plan.quantization)
    # 8 texts of 2048 tokens: hidden states twice, two masks, cosines and sines
    activations = 8 * 2048 * 2 * (2 * 4096 + 2 * 2048 + 4 * 128)
    kept += 0 if asked in ("fp8", "rtn") else activations
    assert needs.disk_bytes == pytest.approx(2 * result + 1.1 * kept + 1e8, rel=1e-3)
    assert needs.spilled_bytes == pytest.approx(16.06e9, rel=1e-3)


def test_quantizing_goes_on_after_an_interruption() -> None:
    given = facts(model_of(LLAMA_3_8B), "ml.g6.xlarge", family="vllm", quantize="awq")

    assert QUANTIZER.step(given, planned(given)).resumable


def test_a_step_that_gives_a_model_knows_every_tensor_of_its_source() -> None:
    given = facts(model_of(LLAMA_3_8B), "ml.g6.xlarge", family="vllm", quantize="fp8")

    (step,) = make_recipe(
        planned(given),
        given,
        PlannerServices(family=FAMILIES.find("vllm").make(), quantizer=QUANTIZER),
    ).steps

    assert len(step.tensors) == 291
    assert step.tensors == given.model.tensors


ALL_METHODS = ("awq", "gptq", "rtn", "fp8", "fp8,static", "smoothquant", "smoothquant,gptq")


def on(method: str, model: Mapping[str, Any] = LLAMA_3_8B, **devices: int) -> Step:
    given = facts(model_of(model), "ml.g6.xlarge", family="vllm", quantize=method)
    return QUANTIZER.step(replace(given, **devices), planned(given))


@pytest.mark.parametrize("method", ALL_METHODS)
def test_threads_are_an_input_where_they_change_bytes_and_nowhere_else(method: str) -> None:
    """AWQ's and GPTQ's results were others with two threads; those of more cores were hits."""
    step = on(method, threads=6)

    if method not in ("rtn", "fp8"):
        assert (dict(step.env), step.threads) == ({"OMP_NUM_THREADS": "6"}, 0)
    else:
        assert (dict(step.env), step.threads) == ({}, 6)


@pytest.mark.parametrize("method", ["awq,group=64", "gptq,group=64", "fp8"])
def test_a_small_model_is_quantized_by_one_thread(method: str) -> None:
    small = {**LLAMA_3_8B, "hidden_size": 1024, "intermediate_size": 2048, "head_dim": 128}

    assert dict(on(method, small, threads=6).env) == {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("method", ALL_METHODS)
def test_a_gpu_does_what_computes_sums_and_is_in_the_key(method: str) -> None:
    on_cpu, on_gpu = on(method), on(method, gpus=4)
    rounds = method in ("rtn", "fp8")

    assert on_gpu.gpus == (0 if rounds else 1)
    assert on_gpu.gpu_use.most == on_gpu.gpus
    assert on_cpu.gpus == 0
    assert (on_gpu.parameters == on_cpu.parameters) is rounds
    assert on_gpu.parameters.get("device", "cpu") == ("cpu" if rounds else "cuda")


@cases("a_layer_of_70b_needs_a_gpu_of_24_gb")
def test_a_layer_of_70b_needs_a_gpu_of_24_gb(method: str, least: float, most: float) -> None:
    """141 GB of weights stay in memory or on disk."""
    large = {
        **LLAMA_3_8B,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
    }
    given = facts(model_of(large), "ml.p4d.24xlarge", family="vllm", quantize=method)
    use = QUANTIZER.gpu_use(given, planned(given))

    assert least < use.each_bytes < most
    assert use.each_bytes < 0.9 * 23028 * 2**20  # an A10G, as its driver says
    assert (use.most, use.helps, use.all_bytes) == (1, True, 0)


@pytest.mark.parametrize(("method", "names_tool"), [("fp8", False), ("rtn", False), ("awq", True)])
def test_what_the_stream_writes_too_is_found_whatever_version_the_tool_has(
    method: str, names_tool: bool
) -> None:
    given = facts(model_of(TINY), "ml.g6.xlarge", quantize=method)
    other = replace(TOOL, worker="c" * 64, requirements="d" * 64)
    plan = planned(given)

    keys = [
        QUANTIZER.step(replace(given, tools={"llmcompressor": tool}), plan).key
        for tool in (TOOL, other)
    ]

    assert (keys[0] != keys[1]) == names_tool
    found = QUANTIZER.step(given, plan).key
    assert isinstance(found, QuantizedCheckpointKey)
    packages = [one.name for one in found.toolchain.packages]
    assert ("packager-rounding" in packages) != names_tool
