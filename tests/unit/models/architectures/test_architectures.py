"""Profiles of released models, against what their publishers say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from packager.core.findings import errors_in
from packager.models.architectures.profile import make_profile
from packager.models.architectures.spellings import find_architecture, is_native
from tests.support import zoo
from tests.support.cases import cases, fields_of
from tests.support.headers import LLAMA_3_8B
from tests.support.layouts import config_of, headers_of
from tests.unit.models.architectures.test_profile import JSON


@cases("profiles", also={}, silent=True)
def test_a_configuration_tells(
    config: str, also: dict[str, Any], expect: dict[str, Any], silent: bool
) -> None:
    profile, findings = make_profile(zoo.config_only(config_of(config) | also))

    assert fields_of(profile, expect) == expect
    assert findings == () or not silent


@cases("refused")
def test_more_experts_a_token_than_there_are_give_no_negative_speed(
    model: str, changed: dict[str, int], said: str
) -> None:
    (error,) = errors_in(make_profile(zoo.files(config_of(model) | changed, headers_of(model)))[1])

    assert (error.code, error.message) == ("config-value", f"config.json: {said}")


@cases("counts_of_experts")
def test_experts_are_counted_under_the_name_that_transformers_5_saves(
    config: str, architecture: str, count: str
) -> None:
    renamed = config_of(config)
    renamed["num_local_experts"] = number = renamed.pop(count)
    profile, findings = make_profile(zoo.config_only(renamed))

    assert (profile.architecture, profile.experts) == (architecture, number)
    assert "config-missing" not in {finding.code for finding in findings}


def test_experts_that_a_token_does_not_meet_are_not_active() -> None:
    mixtral, _ = make_profile(zoo.mixtral())
    qwen, _ = make_profile(zoo.qwen3_moe())

    assert round(mixtral.parameters / 1e9, 1) == 46.7
    assert round(mixtral.active_parameters / 1e9, 1) == 12.9
    assert round(qwen.parameters / 1e9, 1) == 30.5
    assert round(qwen.active_parameters / 1e9, 2) == 3.35
    assert (qwen.experts, qwen.experts_per_token, qwen.expert_size) == (128, 8, 768)


def test_a_token_may_meet_every_expert_of_a_layer() -> None:
    mixtral = zoo.mixtral()
    config = {**mixtral.config, "num_experts_per_tok": 8}

    profile, findings = make_profile(replace(mixtral, config=config))

    assert errors_in(findings) == ()
    assert profile.active_parameters == profile.parameters


def test_mxfp4_blocks_hold_two_weights_in_a_byte() -> None:
    profile, findings = make_profile(zoo.gpt_oss())

    assert findings == ()
    assert round(profile.parameters / 1e9, 1) == 20.9
    assert round(profile.active_parameters / 1e9, 1) == 4.2  # 3.6 without the embedding
    assert (profile.quantization, profile.weight_format, profile.dtype) == (
        "mxfp4",
        "mxfp4",
        "bf16",
    )


def test_deepseek_v3_is_read_and_its_drafting_layer_left_out() -> None:
    model = zoo.deepseek_v3()
    assert len(model.tensors) > 90_000

    profile, findings = make_profile(model)

    assert findings == ()
    assert round(profile.parameters / 1e9) == 671
    assert round(profile.active_parameters / 1e9) == 38  # 37 without the embedding
    assert (profile.attention, profile.attention_size, profile.group_size) == ("mla", 16384, 128)
    assert round(profile.unserved_bytes / 1e9, 1) == 11.5


def test_only_what_quantizers_pack_counts_as_linear() -> None:
    profile, _ = make_profile(zoo.mixtral())

    embeddings, gates, norms = 2 * 32000 * 4096, 32 * 8 * 4096, 65 * 4096
    assert profile.linear_parameters == profile.parameters - embeddings - gates - norms


def test_bitsandbytes_packs_two_weights_in_a_byte() -> None:
    config = LLAMA_3_8B | {
        "num_hidden_layers": 1,
        "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    }
    at = "model.layers.0.mlp.up_proj.weight"
    model = zoo.files(
        config,
        {
            at: ("U8", (4096 * 14336 // 2, 1)),
            f"{at}.absmax": ("F32", (917504,)),
            f"{at}.quant_map": ("F32", (16,)),
            f"{at}.quant_state.bitsandbytes__nf4": ("U8", (82,)),
            "model.norm.weight": ("BF16", (4096,)),
        },
    )

    assert make_profile(model)[0].parameters == 4096 * 14336 + 4096


def test_an_unknown_architecture_is_reckoned_as_a_llama_under_its_own_name() -> None:
    row = find_architecture("NewForCausalLM")

    assert (row.name, row.fields) == (
        "NewForCausalLM",
        find_architecture("LlamaForCausalLM").fields,
    )
    assert not is_native("NewForCausalLM")


ALL = [
    zoo.QWEN3_NEXT_80B,
    zoo.DEEPSEEK_V3,
    zoo.GPT_OSS_20B,
    zoo.FALCON_7B,
    zoo.FALCON_40B_OLD,
    zoo.GPT_2,
    zoo.BLOOM_176B,
    zoo.COMMAND_R,
    zoo.GEMMA_3_4B,
    zoo.MISTRAL_7B_V0_1,
]


@given(config=st.sampled_from(ALL), data=st.data())
def test_no_config_of_any_architecture_raises(config: dict[str, Any], data: st.DataObject) -> None:
    keys = [*config, "layer_types", "sliding_window_pattern", "text_config", "num_nextn"]
    change = data.draw(st.dictionaries(st.sampled_from(keys), JSON))

    profile, findings = make_profile(zoo.config_only(config | change))

    if not errors_in(findings):
        assert min(profile.heads, profile.kv_heads, profile.head_dim, profile.vocab_size) > 0
        assert profile.kv_bytes_per_token > 0
        assert profile.state_bytes >= 0
