"""The rules as users meet them, and the matrix of AWS's SDK reproduced from them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from packager.catalog.compatibility import find_rule, finding_of, matching, rules
from packager.catalog.containers import containers, find_container, version_names
from packager.catalog.instances import find_instance
from packager.core.catalog import SITUATION_KEYS, Rule
from packager.findings import errors_in
from tests.support.case_tables import cases_of

cases = cases_of(__file__)

NOTHING = {
    "quantize": "",
    "scheme": "",
    "checkpoint_format": "",
    "existing": False,
    "source_quantization": "",
    "draft": "",
    "compile": "vllm_cache",
    "load_format": "",
    "dtype": "bf16",
    "kv_dtype": "auto",
    "tp_degree": 1,
    "pp_degree": 1,
}


def situation(
    instance: str, family: str | None = None, version: str | None = None, **asked: Any
) -> dict[str, Any]:
    """Describe what is asked on an instance, with the container that the catalog picks."""
    found = find_instance(instance)
    container = find_container(family, found.kind, version, instance_name=found.name)
    device = {
        "instance": found.name,
        "instance_family": found.family,
        "device": found.kind,
        "device_name": found.device_name,
        "compute_capability": found.compute_capability,
        "formats": found.formats,
        "family": container.family,
        "variant": container.variant,
        "release": container.release,
        "engine": container.engine,
        "engine_version": container.engine_version,
        "target": "image",
    }
    return {**NOTHING, **device, **asked}


def errors(asked: dict[str, Any]) -> list[str]:
    """The codes of the errors in a situation, in the table's order."""
    findings = (finding_of(rule, asked) for rule in matching(rules(), asked))
    return [finding.code for finding in errors_in(findings)]


def codes(asked: dict[str, Any]) -> set[str]:
    """Every code that a situation gives."""
    return {rule.id for rule in matching(rules(), asked)}


@pytest.mark.parametrize("instance", ["ml.p5.48xlarge", "ml.g6.12xlarge", "ml.g6e.12xlarge"])
def test_fp8_arithmetic_begins_with_ada(instance: str) -> None:
    assert errors(situation(instance, quantize="fp8", scheme="W8A8-FP8")) == []


@pytest.mark.parametrize("instance", ["ml.p4d.24xlarge", "ml.g5.12xlarge"])
def test_before_ada_fp8_keeps_weights_only(instance: str) -> None:
    asked = situation(instance, quantize="fp8", scheme="W8A8-FP8")

    assert errors(asked) == ["fp8-w8a8-no-kernel"]
    assert errors({**asked, "scheme": "W8A16-FP8"}) == []


def test_the_refusal_of_fp8_names_the_device_and_the_way_out() -> None:
    asked = situation("ml.g5.12xlarge", quantize="fp8", scheme="W8A8-FP8")
    (rule,) = (rule for rule in matching(rules(), asked) if rule.severity == "error")
    finding = finding_of(rule, asked)

    assert finding.message == (
        "A10G (compute capability 8.6) cannot multiply in FP8; "
        "that begins with 8.9 (L4, L40S, H100)"
    )
    assert finding.hint.startswith("use scheme W8A16-FP8")


def test_a_checkpoint_that_is_fp8_already_is_served_weight_only_on_older_gpus() -> None:
    asked = situation(
        "ml.p4d.24xlarge",
        quantize="fp8",
        scheme="W8A8-FP8",
        existing=True,
        source_quantization="fp8",
    )

    assert errors(asked) == []
    assert "fp8-weights-only" in codes(asked)


def test_turing_neither_computes_in_bf16_nor_in_fp8() -> None:
    asked = situation("ml.g4dn.12xlarge", quantize="fp8", scheme="W8A8-FP8")

    assert errors(asked) == ["bf16-before-ampere", "fp8-w8a8-no-kernel"]


V100 = {"compute_capability": 7.0, "device_name": "V100"}
FP8_ON_T4: tuple[tuple[str, str, str, dict[str, Any], list[str]], ...] = (
    ("vllm", "0.27.1", "compressed-tensors", {}, []),
    ("vllm", "0.33.0", "compressed-tensors", {}, []),
    ("vllm", "0.16.0", "compressed-tensors", {}, []),
    ("vllm", "0.16.0", "fp8", {}, []),
    ("vllm", "0.15.1", "compressed-tensors", {}, ["fp8-compressed-before-ampere"]),
    ("vllm", "0.14.0", "compressed-tensors", {}, ["fp8-compressed-before-ampere"]),
    ("vllm", "0.14.0", "fp8", {}, []),
    ("vllm", "0.14.0", "", {}, []),
    ("vllm", "0.13.0", "compressed-tensors", {}, ["fp8-before-ampere-in-vllm"]),
    ("vllm", "0.13.0", "fp8", {}, ["fp8-before-ampere-in-vllm"]),
    ("vllm", "0.27.1", "modelopt", {}, ["fp8-format-before-ampere"]),
    ("vllm", "0.27.1", "fbgemm_fp8", {}, ["fp8-format-before-ampere"]),
    ("vllm", "0.19.0", "fp8", V100, ["fp8-before-turing"]),
    ("sglang", "0.5.17", "compressed-tensors", {}, ["fp8-no-kernel"]),
    ("tgi", "3.3.6", "compressed-tensors", {}, ["fp8-no-kernel"]),
    ("tgi", "3.3.6", "fp8", {}, ["fp8-no-kernel"]),
)


@pytest.mark.parametrize(
    ("engine", "version", "checkpoint_format", "device", "found"),
    FP8_ON_T4,
    ids=[f"{one[0]}-{one[1]}-{one[2]}{'-V100' if one[3] else ''}" for one in FP8_ON_T4],
)
@pytest.mark.parametrize("existing", [True, False], ids=["arrived", "quantized"])
def test_fp8_weights_on_turing_are_refused_by_versions_without_the_kernel_alone(
    engine: str,
    version: str,
    checkpoint_format: str,
    device: dict[str, Any],
    found: list[str],
    *,
    existing: bool,
) -> None:
    asked = situation(
        "ml.g4dn.xlarge",
        engine=engine,
        engine_version=version,
        family=engine,
        scheme="W8A16-FP8",
        checkpoint_format=checkpoint_format,
        existing=existing,
        quantize="fp8",
        dtype="fp16",
    )

    assert errors({**asked, **device}) == found


HEADS = {"attention": "heads", "head_dim": 128, "architecture": "LlamaForCausalLM"}
LATENT = {"attention": "mla", "head_dim": 192, "architecture": "DeepseekV3ForCausalLM"}
SINKS = {"attention": "heads", "head_dim": 64, "architecture": "GptOssForCausalLM"}
FP8_CACHES: tuple[tuple[str, str, str, dict[str, Any], list[str]], ...] = (
    ("ml.g5.xlarge", "vllm", "0.27.1", HEADS, []),
    ("ml.p4d.24xlarge", "vllm", "0.11.1", HEADS, []),
    ("ml.g5.xlarge", "vllm", "0.33.0", {**HEADS, "head_dim": 64}, []),
    ("ml.g5.xlarge", "vllm", "0.33.0", {**HEADS, "head_dim": 256}, []),
    ("ml.g5.xlarge", "sglang", "0.5.17", HEADS, []),
    ("ml.g5.xlarge", "tgi", "3.3.6", HEADS, []),
    ("ml.g5.xlarge", "vllm", "0.10.2", HEADS, ["fp8-kv-engine-version"]),
    ("ml.g5.xlarge", "tensorrt-llm", "0.21.0", HEADS, ["fp8-kv-engine"]),
    ("ml.g5.xlarge", "vllm", "0.27.1", {**HEADS, "head_dim": 96}, ["fp8-kv-head-size"]),
    ("ml.g5.xlarge", "sglang", "0.5.17", {**HEADS, "head_dim": 80}, ["fp8-kv-head-size"]),
    ("ml.p4d.24xlarge", "vllm", "0.27.1", LATENT, ["fp8-kv-latent"]),
    ("ml.p4d.24xlarge", "vllm", "0.27.1", SINKS, ["fp8-kv-sinks"]),
    ("ml.g6.xlarge", "vllm", "0.10.2", HEADS, []),
    ("ml.g6.xlarge", "vllm", "0.27.1", {**HEADS, "head_dim": 96}, []),
    ("ml.p5.48xlarge", "vllm", "0.27.1", LATENT, []),
)


@pytest.mark.parametrize(
    ("instance", "engine", "version", "model", "found"),
    FP8_CACHES,
    ids=[f"{one[0]}-{one[1]}-{one[2]}-{one[3]['head_dim']}" for one in FP8_CACHES],
)
def test_an_fp8_cache_before_ada_is_refused_only_where_flashinfer_does_not_read_it(
    instance: str, engine: str, version: str, model: dict[str, Any], found: list[str]
) -> None:
    asked = situation(instance, engine=engine, engine_version=version, kv_dtype="fp8", **model)

    assert errors(asked) == found
    assert ("fp8-kv-before-ada" in codes(asked)) == (
        instance not in ("ml.g6.xlarge", "ml.p5.48xlarge")
    )
    assert errors({**asked, "kv_dtype": "auto"}) == []


@cases("of_4_bit_floats_turing_unpacks_nvfp4_alone")
def test_of_4_bit_floats_turing_unpacks_nvfp4_alone(
    scheme: str, version: str, found: list[str]
) -> None:
    asked = situation(
        "ml.g4dn.xlarge",
        engine_version=version,
        scheme=scheme,
        checkpoint_format="compressed-tensors",
        existing=True,
        dtype="fp16",
    )

    assert errors(asked) == found


@cases("nvfp4_begins_with_blackwell")
def test_nvfp4_begins_with_blackwell(instance: str, expected: list[str]) -> None:
    assert errors(situation(instance, quantize="nvfp4", scheme="NVFP4")) == expected


def test_smoothquant_runs_where_int8_has_a_kernel() -> None:
    def smooth(instance: str) -> list[str]:
        return errors(situation(instance, quantize="smoothquant", scheme="W8A8-INT8"))

    assert smooth("ml.g5.12xlarge") == []
    assert smooth("ml.p5.48xlarge") == []
    assert smooth("ml.p6-b200.48xlarge") == ["int8-not-on-blackwell"]
    assert smooth("ml.p3.8xlarge") == ["bf16-before-ampere", "int8-no-kernel"]
    assert smooth("ml.c7i.4xlarge") == []


@pytest.mark.parametrize("method", ["awq", "gptq", "fp8", "smoothquant"])
def test_nothing_is_quantized_for_neuron(method: str) -> None:
    asked = situation("ml.inf2.48xlarge", compile="neuron", quantize=method)

    assert errors(asked) == ["neuron-no-quantize"]


def test_a_server_that_will_compile_at_start_is_a_warning() -> None:
    asked = situation("ml.inf2.48xlarge", compile="")

    assert errors(asked) == []
    assert "neuron-compiles-at-start" in codes(asked)
    assert "neuron-compiles-at-start" not in codes({**asked, "variant": "hf-vllm-neuronx"})


def test_newer_neuron_images_are_doubted_on_inferentia() -> None:
    doubted = situation("ml.inf2.48xlarge", "neuron", "2.31.1", compile="neuron")
    default = situation("ml.inf2.48xlarge", compile="neuron")

    assert "neuron-nxdi-needs-trn2" in codes(doubted)
    assert "neuron-nxdi-needs-trn2" not in codes(default)


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_medusa_v2_heads_cannot_load_on_a_packed_model(method: str) -> None:
    asked = situation(
        "ml.g5.12xlarge",
        "tgi",
        quantize=method,
        scheme="W4A16",
        dtype="fp16",
        draft="medusa",
        draft_version="v2",
        draft_heads=3,
        speculative_tokens=3,
    )

    assert errors(asked) == ["tgi-medusa-v2-quantized"]
    assert errors({**asked, "draft_version": "v1"}) == []
    assert errors({**asked, "quantize": "fp8", "scheme": "W8A16-FP8"}) == []


@pytest.mark.parametrize("scheme", ["NVFP4", "NVFP4A16"])
def test_tgi_is_given_no_nvfp4_with_or_without_quantized_activations(scheme: str) -> None:
    asked = situation("ml.p6-b200.48xlarge", "tgi", quantize="nvfp4", scheme=scheme)

    assert errors(asked) == ["tgi-nvfp4"]


@pytest.mark.parametrize(("tokens", "expected"), [(3, []), (4, ["tgi-medusa-too-many-tokens"])])
def test_tgi_speculates_no_further_than_its_heads(tokens: int, expected: list[str]) -> None:
    asked = situation(
        "ml.g5.12xlarge",
        "tgi",
        draft="medusa",
        draft_version="v1",
        draft_heads=3,
        speculative_tokens=tokens,
    )

    assert errors(asked) == expected


def test_tgi_serves_packed_checkpoints_in_float16() -> None:
    asked = situation(
        "ml.g5.12xlarge", "tgi", quantize="awq", scheme="W4A16", checkpoint_format="awq"
    )

    assert "tgi-quantized-fp16" in codes(asked)
    assert "tgi-quantized-fp16" not in codes({**asked, "dtype": "fp16"})


@pytest.mark.parametrize("draft", ["draft_model", "eagle", "eagle3"])
def test_tgi_knows_no_draft_models(draft: str) -> None:
    asked = situation("ml.g5.12xlarge", "tgi", draft=draft, architecture="LlamaForCausalLM")

    assert errors(asked) == ["tgi-draft-kind"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.33.0", ["medusa-gone-from-vllm"]), ("0.32.0", []), ("0.26.0", [])],
)
def test_medusa_left_vllm_with_0_33(version: str, expected: list[str]) -> None:
    asked = situation(
        "ml.g5.12xlarge",
        "vllm",
        version,
        draft="medusa",
        draft_version="v1",
        draft_heads=3,
        speculative_tokens=3,
    )

    assert errors(asked) == expected


@cases("a_draft_model_is_missing_between_vllm_0_10_and_0_15")
def test_a_draft_model_is_missing_between_vllm_0_10_and_0_15(lmi: str, expected: list[str]) -> None:
    assert errors(situation("ml.p4d.24xlarge", "lmi", lmi, draft="draft_model")) == expected


@cases("eagle3_depends_on_the_engine_and_the_architecture")
def test_eagle3_depends_on_the_engine_and_the_architecture(
    architecture: str, lmi: str, expected: list[str]
) -> None:
    asked = situation("ml.p5.48xlarge", "lmi", lmi, draft="eagle3", architecture=architecture)

    assert errors(asked) == expected


@cases("packed_weights_of_bloom_are_mixed_up_by_newer_versions")
def test_packed_weights_of_bloom_are_mixed_up_by_newer_versions(
    version: str, scheme: str, expected: list[str]
) -> None:
    asked = situation("ml.p4d.24xlarge", "vllm", architecture="BloomForCausalLM", scheme=scheme)

    found = errors({**asked, "engine_version": version, "formats": {"w4a16", "int8_w8a8"}})

    assert [code for code in found if "bloom" in code] == expected


def test_lmis_own_optimization_scripts_are_dead_after_14() -> None:
    def asked(lmi: str) -> dict[str, Any]:
        return situation("ml.g5.12xlarge", "lmi", lmi, tool="lmi-neo")

    assert errors(asked("14")) == []
    assert errors(asked("15")) == ["lmi-neo-broken"]
    assert errors(asked("28")) == ["lmi-neo-broken"]


def test_tensorrt_engines_need_their_image_and_end_with_1_2() -> None:
    wrong_image = situation("ml.g5.12xlarge", "lmi", compile="tensorrt_llm")
    right_image = situation(
        "ml.g5.12xlarge", "lmi", "0.33.0-tensorrtllm0.21.0-cu128", compile="tensorrt_llm"
    )

    assert errors(wrong_image) == ["tensorrt-needs-its-image"]
    assert errors(right_image) == []
    assert errors({**right_image, "engine_version": "1.2.1"}) == []
    assert errors({**right_image, "engine_version": "1.3.0"}) == ["tensorrt-engine-gone"]


def test_every_conflict_is_found_at_once() -> None:
    asked = situation(
        "ml.g5.12xlarge",
        "tgi",
        quantize="fp8",
        scheme="W8A8-FP8",
        draft="eagle3",
        compile="tensorrt_llm",
        architecture="LlamaForCausalLM",
    )

    assert errors(asked) == ["fp8-w8a8-no-kernel", "tensorrt-needs-its-image", "tgi-draft-kind"]


# The SageMaker SDK's matrix: serve/validations/optimization.py, run.  On GPUs: what it takes
# beside compilation and a draft; everything else it refuses.
ACCEPTED_ON_GPUS = {
    # (quantize, compile, draft, load_format)
    ("", "", "auto", ""),
    ("", "on", "", ""),
    ("awq", "", "", ""),
    ("fp8", "", "", ""),
    ("awq", "", "auto", ""),
    ("fp8", "", "auto", ""),
    ("awq", "on", "", ""),
    ("fp8", "on", "", ""),
    ("smoothquant", "on", "", ""),
    ("", "", "", "sagemaker_fast_model_loader"),
}
ACCEPTED_ON_NEURON = {("", "on", "", "")}


@pytest.mark.parametrize("load_format", ["", "sagemaker_fast_model_loader"])
@pytest.mark.parametrize("draft", ["", "auto"])
@pytest.mark.parametrize("compiled", ["", "on"])
@pytest.mark.parametrize("quantize", ["", "awq", "fp8", "smoothquant", "gptq"])
@pytest.mark.parametrize("family", ["p4d", "p5", "g5", "g6", "inf2", "trn1", "g4dn", "g6e", "p5en"])
def test_the_matrix_of_the_sagemaker_sdk(
    family: str, quantize: str, compiled: str, draft: str, load_format: str
) -> None:
    asked = {
        "target": "sagemaker-job",
        "model": "meta-llama/Llama-2-70b-hf",
        "instance_family": family,
        "quantize": quantize,
        "compile": compiled,
        "draft": draft,
        "load_format": load_format,
    }
    if family in ("inf2", "trn1"):
        accepted = (quantize, compiled, draft, load_format) in ACCEPTED_ON_NEURON
    elif family in ("g4dn", "g6e", "p5en"):
        accepted = False
    else:
        accepted = (quantize, compiled, draft, load_format) in ACCEPTED_ON_GPUS

    assert (errors(asked) == []) is accepted


@pytest.mark.parametrize(
    "model", ["meta-textgeneration-llama-3-1-70b-instruct", "meta-llama/Meta-Llama-3-70B"]
)
def test_the_sdk_does_not_compile_llama_3_for_gpus(model: str) -> None:
    asked = {
        "target": "sagemaker-job",
        "model": model,
        "instance_family": "p4d",
        "quantize": "",
        "compile": "on",
        "draft": "",
        "load_format": "",
    }

    assert errors(asked) == ["sagemaker-job-compile-llama-3"]


def test_aws_jobs_do_not_limit_what_packager_builds() -> None:
    asked = situation("ml.g6e.12xlarge", "vllm", quantize="gptq", scheme="W4A16")

    assert not [code for code in codes(asked) if code.startswith("sagemaker-job")]


def test_every_rule_is_sourced_dated_and_has_a_way_out() -> None:
    for rule in rules():
        assert rule.source and rule.reason and rule.instead and rule.when, rule.id
        assert rule.date.startswith("20"), rule.id
        assert rule.id == rule.id.lower() and " " not in rule.id
        assert not rule.reason.endswith("."), rule.id


def test_every_way_out_that_names_a_version_names_one_that_exists() -> None:
    known = {name for image in containers() for name in version_names(image)}
    named = {
        version
        for rule in rules()
        for version in re.findall(r"--container-version (\S+?)`", rule.instead)
    }

    assert named and named <= known


def test_every_key_of_a_situation_is_explained() -> None:
    assert all(SITUATION_KEYS.values())


def test_a_rule_is_found_by_its_code() -> None:
    found = find_rule("tgi-medusa-v2-quantized")

    assert found is not None and found.severity == "error"
    assert find_rule("no-such-code") is None


def rule(**when: Any) -> Rule:
    return Rule(
        id="r",
        severity="error",
        when=when,
        reason="because",
        instead="do else",
        source="a test",
        date="2026-11-20",
    )


@pytest.mark.parametrize(
    ("wanted", "actual", "holds"),
    [
        ("awq", "awq", True),
        ("awq", "gptq", False),
        ("awq", "", False),
        ("*", "awq", True),
        ("*", "", False),
        ("!awq", "gptq", True),
        ("!awq", "awq", False),
        ("", "", True),
        (("awq", "gptq"), "gptq", True),
        (("!awq", "!gptq"), "fp8", True),
        (("!awq", "!gptq"), "awq", False),
        ("~^gp", "gptq", True),
        (True, True, True),
        (True, False, False),
        (False, "", False),
    ],
)
def test_conditions(wanted: Any, actual: Any, holds: bool) -> None:
    assert (matching([rule(quantize=wanted)], {"quantize": actual}) != ()) is holds


@cases("versions_are_compared_as_versions")
def test_versions_are_compared_as_versions(wanted: str, actual: str, holds: bool) -> None:
    assert (matching([rule(engine_version=wanted)], {"engine_version": actual}) != ()) is holds


def test_what_is_not_known_fulfils_nothing() -> None:
    assert matching([rule(compute_capability="<8.0")], {}) == ()
    assert matching([rule(compute_capability="<8.0")], {"compute_capability": None}) == ()
    assert matching([rule(speculative_tokens=">$draft_heads")], {"speculative_tokens": 5}) == ()


def test_a_misspelled_key_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule knows of quantise"):
        matching(rules(), {"quantise": "awq"})


def test_no_way_out_names_a_compiler_that_does_not_exist() -> None:
    named = {name for rule in rules() for name in re.findall(r"--compile ([a-z_]+)", rule.instead)}

    assert named <= {"off", "auto"}


@cases("an_architecture_newer_than_the_engine_is_refused")
def test_an_architecture_newer_than_the_engine_is_refused(
    architecture: str, release: str, code: str
) -> None:
    old = situation("ml.g5.12xlarge", "lmi", release) | {"architecture": architecture}
    new = situation("ml.g5.12xlarge", "lmi", "16") | {"architecture": architecture}

    assert code in [rule.id for rule in matching(rules(), old)]
    assert code not in [rule.id for rule in matching(rules(), new)]
