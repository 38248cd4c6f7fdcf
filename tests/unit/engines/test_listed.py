"""Architectures against what each engine's version has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.catalog.containers import containers, find_container
from packager.engines.supported_models import check_listed, check_neuron_type
from packager.findings import Finding
from tests.support.engine_plans import LLAMA_8B, plan_for


def found(
    engine: str, version: str, architecture: str, model_type: str = "", *, state_bytes: int = 0
) -> list[Finding]:
    family = {"vllm": "vllm", "sglang": "sglang", "tgi": "tgi"}[engine]
    profile = replace(
        LLAMA_8B, architecture=architecture, model_type=model_type, state_bytes=state_bytes
    )
    plan = replace(
        plan_for(family),
        profile=profile,
        container=replace(find_container(family, "nvidia"), engine_version=version),
        containers=containers(),
    )
    return list(check_listed(engine, plan))


@pytest.mark.parametrize(
    ("engine", "version", "architecture", "model_type"),
    [
        ("vllm", "0.27.1", "LlamaForCausalLM", "llama"),
        ("vllm", "0.27.1", "MiniMaxM2ForCausalLM", "minimax_m2"),
        ("vllm", "0.27.1", "NemotronHForCausalLM", "nemotron_h"),
        ("vllm", "0.18.0", "DeepseekV3ForCausalLM", "kimi_k2"),
        ("vllm", "0.17.5", "DeepseekV3ForCausalLM", "kimi_k2"),  # between two lists
        ("vllm", "0.16.1", "Qwen3_5ForConditionalGeneration", "qwen3_5"),
        ("vllm", "0.15.1", "KimiK25ForConditionalGeneration", "kimi_k25"),
        ("vllm", "0.27.1", "NeverHeardOfForCausalLM", "never"),  # planning warns of it
        ("sglang", "0.5.17", "DeepseekV3ForCausalLM", "kimi_k2"),
        ("tgi", "3.3.6", "LlamaForCausalLM", "llama"),
    ],
)
def test_what_the_version_has_is_not_complained_of(
    engine: str, version: str, architecture: str, model_type: str
) -> None:
    assert found(engine, version, architecture, model_type) == []


@pytest.mark.parametrize(
    ("engine", "version", "architecture", "model_type", "said"),
    [
        (
            "vllm",
            "0.16.0",
            "Qwen3_5MoeForConditionalGeneration",
            "qwen3_5_moe",
            "first version that has it is 0.17.0",
        ),
        ("vllm", "0.27.1", "XverseForCausalLM", "", "last version that has it is 0.23.0"),
        ("vllm", "0.27.1", "DotsVLMForCausalLM", "", "no version up to 0.33.0 lists it"),
        (
            "vllm",
            "0.17.1",
            "DeepseekV3ForCausalLM",
            "kimi_k2",
            "type 'kimi_k2'; the first version that does is 0.18.0",
        ),
        ("sglang", "0.5.8", "Qwen3_5ForConditionalGeneration", "", "has it is 0.5.9"),
    ],
)
def test_what_the_version_lacks_is_refused_with_the_version_that_has_it(
    engine: str, version: str, architecture: str, model_type: str, said: str
) -> None:
    (finding,) = found(engine, version, architecture, model_type)

    assert (finding.severity, finding.code) == ("error", "engine-lacks-architecture")
    assert said in finding.message


def test_a_container_that_has_it_is_proposed() -> None:
    (finding,) = found("vllm", "0.10.0", "MiniMaxM2ForCausalLM", "minimax_m2")

    assert "--container-version" in finding.hint


def test_a_later_engine_than_the_lists_is_warned_of_only() -> None:
    (finding,) = found("vllm", "0.99.0", "DotsVLMForCausalLM")

    assert finding.severity == "warning"


@pytest.mark.parametrize("architecture", ["PersimmonForCausalLM", "BioGptForCausalLM"])
def test_a_decoder_of_transformers_is_served_by_its_own_code(architecture: str) -> None:
    (finding,) = found("vllm", "0.27.1", architecture)

    assert (finding.severity, finding.code) == ("warning", "engine-falls-back")


def test_states_are_not_kept_by_the_code_of_transformers() -> None:
    (finding,) = found("vllm", "0.27.1", "BambaForCausalLM", "bamba", state_bytes=1)

    assert finding.severity == "error"


def test_before_the_fallback_an_unlisted_decoder_is_refused() -> None:
    (finding,) = found("vllm", "0.6.6", "BioGptForCausalLM")

    assert finding.severity == "error"


def test_tgi_is_asked_by_the_type_of_the_configuration() -> None:
    (finding,) = found("tgi", "3.3.6", "Qwen3MoeForCausalLM", "qwen3_moe")

    assert (finding.severity, finding.code) == ("warning", "engine-falls-back")
    assert "'qwen3_moe'" in finding.message


@pytest.mark.parametrize(
    ("container", "model_type", "is_listed"),
    [
        ("neuron-nxdi", "llama", True),
        ("neuron-nxdi", "qwen3_moe", True),
        ("neuron-nxdi", "mamba", False),
        ("neuron-nxdi", "phi3", False),
        ("neuron-tgi", "phi3", True),
        ("neuron-tgi", "gpt_oss", False),
    ],
)
def test_a_neuron_library_is_asked_for_the_type_that_it_compiles(
    container: str, model_type: str, is_listed: bool
) -> None:
    plan = plan_for(container, profile=replace(LLAMA_8B, model_type=model_type))

    found = list(check_neuron_type(plan))

    assert (found == []) is is_listed
    assert all(one.code == "engine-lacks-architecture" for one in found)
