"""Profiles of released models, against what their publishers say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.architectures.profile import make_profile
from packager.architectures.spellings import find_architecture, is_native
from packager.core.model import ModelFiles
from packager.findings import errors_in
from tests.support import mtp_models, zoo
from tests.support.case_tables import cases_of
from tests.support.headers import LLAMA_3_8B
from tests.unit.architectures.test_profile import JSON

cases = cases_of(__file__)


@pytest.mark.parametrize(
    ("config", "kv_bytes", "kv_heads"),
    [
        (zoo.MIXTRAL_8X7B, 131_072, 8),
        (zoo.QWEN3_30B_A3B, 98_304, 4),
        (zoo.QWEN3_NEXT_80B, 24_576, 2),  # 12 of 48 layers
        (mtp_models.QWEN3_5, 65_536, 4),  # 16 of 64 layers
        (mtp_models.QWEN3_5_MOE, 20_480, 2),  # 10 of 40 layers
        (zoo.DEEPSEEK_V3, 70_272, 128),  # 61 * (512 + 64) * 2
        (zoo.FALCON_7B, 8_192, 1),  # states 71, has one
        (zoo.FALCON_40B, 122_880, 8),
        (zoo.FALCON_40B_OLD, 122_880, 8),
        (zoo.GPT_2, 36_864, 12),
        (zoo.GPT_NEOX_20B, 1_081_344, 64),
        (zoo.BLOOM_176B, 4_014_080, 112),
        (zoo.COMMAND_R, 1_310_720, 64),
        (zoo.PHI_2, 327_680, 32),
        (zoo.GEMMA_3_4B, 139_264, 4),
        (zoo.LLAMA_3_1_405B, 516_096, 8),
    ],
    ids=lambda value: value["architectures"][0] if isinstance(value, dict) else str(value),
)
def test_a_tokens_cache_is_known(config: dict[str, Any], kv_bytes: int, kv_heads: int) -> None:
    profile, findings = make_profile(zoo.config_only(config))

    assert findings == ()
    assert (profile.kv_bytes_per_token, profile.kv_heads) == (kv_bytes, kv_heads)
    assert profile.known


@pytest.mark.parametrize(
    ("config", "layers", "tokens"),
    [
        (zoo.MISTRAL_7B_V0_1, 32, 4096),
        (zoo.GEMMA_3_4B, 29, 1024),  # five of six
        (zoo.GPT_OSS_20B, 12, 128),
        (zoo.MIXTRAL_8X7B, 0, 0),
        (LLAMA_3_8B, 0, 0),
    ],
    ids=lambda value: value["architectures"][0] if isinstance(value, dict) else str(value),
)
def test_sliding_windows_are_known(config: dict[str, Any], layers: int, tokens: int) -> None:
    profile, _ = make_profile(zoo.config_only(config))

    assert (profile.window_layers if tokens else 0, profile.window_tokens) == (layers, tokens)


def test_linear_attention_keeps_a_state_of_constant_size() -> None:
    profile, _ = make_profile(zoo.config_only(zoo.QWEN3_NEXT_80B))

    mixed, recurrent = 8192 * 3 * 2, 32 * 128 * 128 * 4
    assert profile.state_bytes == 36 * (mixed + recurrent)
    assert (profile.cached_layers, profile.split_counts) == (12, (16, 32))


def test_positions_that_vllm_reads_from_another_key_are_found() -> None:
    assert make_profile(zoo.config_only(zoo.COMMAND_R))[0].max_positions == 131_072


def test_experts_that_a_token_does_not_meet_are_not_active() -> None:
    mixtral, _ = make_profile(zoo.mixtral())
    qwen, _ = make_profile(zoo.qwen3_moe())

    assert round(mixtral.parameters / 1e9, 1) == 46.7
    assert round(mixtral.active_parameters / 1e9, 1) == 12.9
    assert round(qwen.parameters / 1e9, 1) == 30.5
    assert round(qwen.active_parameters / 1e9, 2) == 3.35
    assert (qwen.experts, qwen.experts_per_token, qwen.expert_size) == (128, 8, 768)


@pytest.mark.parametrize(
    ("model", "changed", "said"),
    [
        (
            zoo.mixtral,
            {"num_experts_per_tok": 9},
            "num_experts_per_tok is 9, not at most the 8 experts of a layer",
        ),
        (
            zoo.deepseek_v3,
            {"n_routed_experts": 4},
            "num_experts_per_tok is 8, not at most the 4 experts of a layer",
        ),
    ],
    ids=["more-per-token", "fewer-experts"],
)
def test_more_experts_a_token_than_there_are_give_no_negative_speed(
    model: Callable[[], ModelFiles], changed: dict[str, int], said: str
) -> None:
    found = model()

    _, findings = make_profile(replace(found, config={**found.config, **changed}))

    assert [(one.code, one.message) for one in errors_in(findings)] == [
        ("config-value", f"config.json: {said}")
    ]


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


@cases("later_formats_are_recognised")
def test_later_formats_are_recognised(stated: dict[str, Any], weight_format: str) -> None:
    config = LLAMA_3_8B | {"quantization_config": stated}

    profile, findings = make_profile(zoo.config_only(config))

    assert (profile.quantization, profile.weight_format) == (stated["quant_method"], weight_format)
    assert findings == ()


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


@pytest.mark.parametrize(
    ("config", "architecture", "count"),
    [
        (zoo.QWEN3_30B_A3B, "Qwen3MoeForCausalLM", "num_experts"),
        (zoo.QWEN3_NEXT_80B, "Qwen3NextForCausalLM", "num_experts"),
        (zoo.DEEPSEEK_V3, "DeepseekV3ForCausalLM", "n_routed_experts"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_experts_are_counted_under_the_name_that_transformers_5_saves(
    config: dict[str, Any], architecture: str, count: str
) -> None:
    renamed = {key: value for key, value in config.items() if key != count}
    profile, findings = make_profile(
        zoo.config_only(renamed | {"num_local_experts": config[count]})
    )

    assert (profile.architecture, profile.experts) == (architecture, config[count])
    assert "config-missing" not in {finding.code for finding in findings}


def test_opt_states_the_size_of_its_mlp_as_ffn_dim() -> None:
    opt = {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "hidden_size": 2048,
        "ffn_dim": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
    }

    profile, findings = make_profile(zoo.config_only(opt))

    assert (profile.intermediate_size, profile.kv_heads, profile.head_dim) == (8192, 32, 64)
    assert {finding.code for finding in findings} <= {"no-weights", "config-mismatch"}
