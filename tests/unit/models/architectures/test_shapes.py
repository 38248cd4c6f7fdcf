"""168 published models of 95 architectures: planned, or refused as what they are."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from packager.catalog.containers import containers, find_container
from packager.core.findings import errors_in
from packager.core.model import KvGroup, ModelProfile
from packager.engines.supported_models import check_listed
from packager.models.architectures.blocks import read_blocks
from packager.models.architectures.profile import make_profile
from packager.models.architectures.reading import Config
from packager.models.contents import refuse_own_code
from packager.models.refusals import CodeNeeded
from tests.support.cases import cases, fields_of, read_tables
from tests.support.engine_plans import plan_for
from tests.support.shapes import config_of, models, plain
from tests.support.zoo import config_only
from tests.unit.models.architectures.test_profile import JSON

TABLES = read_tables(__file__)

# Everything else is planned by the default container, vLLM 0.27.1 on NVIDIA.
OWN_CODE = "own code"  # vLLM reads these configurations only with --trust-remote-code
REFUSED = TABLES["refused"]


@cache
def profile_of(name: str) -> ModelProfile:
    return make_profile(plain(name))[0]


def verdict(name: str) -> str:
    try:
        refuse_own_code(config_of(name))
    except CodeNeeded:
        return OWN_CODE
    profile, findings = make_profile(plain(name))
    container = find_container("vllm", "nvidia")
    plan = replace(plan_for("vllm"), profile=profile, container=container, containers=containers())
    if not errors_in(findings):
        findings += tuple(check_listed("vLLM", plan))
    return next((finding.code for finding in errors_in(findings)), "planned")


def test_published_models_are_planned_or_rightly_refused() -> None:
    verdicts = {name: verdict(name) for name in models()}

    assert {name: said for name, said in verdicts.items() if said != "planned"} == REFUSED
    assert len(verdicts) == 168
    assert len({config_of(name)["architectures"][0] for name in verdicts}) == 95


@cases("a_published_config_is_not_refused_for_what_it_leaves_out")
def test_a_published_config_is_not_refused_for_what_it_leaves_out(name: str) -> None:
    assert verdict(name) == "planned"


# What publishers say, in billions: total, active, and what they leave out of the active ones.
# The model cards of the hub, and the papers of DeepSeek, GLM-4.5 and gpt-oss; 2026-11-22.
ALL, LOOKED_UP, NO_WORDS, NO_TOWER = "", "embedding", "embedding and head", "tower"


def close(ours: float, published: float) -> bool:
    """Within 2 %, or the same when rounded to the digits that were published."""
    digits = len(f"{published:g}".partition(".")[2])
    return abs(ours - published) <= 0.02 * published or round(ours, digits) == published


@cases("published", left_out="")
def test_active_parameters_are_those_that_the_publisher_states(
    name: str, total: float, active: float, left_out: str
) -> None:
    profile = profile_of(name)
    words = profile.vocab_size * profile.hidden_size
    less = {ALL: 0, LOOKED_UP: words, NO_WORDS: 2 * words, NO_TOWER: profile.tower_bytes // 2}[
        left_out
    ]

    assert profile.known
    assert close(profile.parameters / 1e9, total)
    assert close((profile.active_parameters - less) / 1e9, active)


@cases("only_layers_that_attend_keep_a_cache_and_the_others_a_state")
def test_only_layers_that_attend_keep_a_cache_and_the_others_a_state(
    name: str, per_token: int, cached: int, state: int
) -> None:
    profile = profile_of(name)

    assert profile.kv_bytes_per_token == per_token
    assert (profile.cached_layers, profile.state_bytes) == (cached, state)


@cases("layers_that_keep_the_same_are_one_group")
def test_layers_that_keep_the_same_are_one_group(name: str, groups: tuple[KvGroup, ...]) -> None:
    assert profile_of(name).kv_groups == groups


def test_a_latent_that_the_engine_expands_is_no_small_cache() -> None:
    """MiniCPM3's weights have a latent; vLLM keeps the keys and values of all heads."""
    assert profile_of("openbmb/MiniCPM3-4B").kv_bytes_per_token == 62 * 40 * 2 * 96 * 2


@cases("unusual_attention")
def test_unusual_attention_is_read(config: dict[str, Any], expect: dict[str, Any]) -> None:
    profile, findings = make_profile(config_only(config))

    assert errors_in(findings) == ()
    assert fields_of(profile, expect) == expect


def test_one_key_value_head_is_assumed_where_a_class_assumes_it() -> None:
    """StarCoder leaves multi_query out where it is what GPTBigCode assumes."""
    model = plain("bigcode/starcoder")
    silent = {key: value for key, value in model.config.items() if key != "multi_query"}

    assert make_profile(replace(model, config=silent))[0].kv_heads == 1
    assert profile_of("bigcode/starcoder").kv_bytes_per_token == 40 * 2 * 128 * 2


def test_layers_of_a_pruned_llama_differ_one_by_one() -> None:
    """Nemotron-Super has attention in 49 of 80 layers, and states neither heads nor MLP."""
    profile = profile_of("nvidia/Llama-3_3-Nemotron-Super-49B-v1")

    assert (profile.kv_heads, profile.intermediate_size) == (8, 28_672)
    assert (profile.cached_layers, profile.kv_bytes_per_token) == (49, 49 * 2 * 8 * 128 * 2)


def test_the_mlp_of_a_pruned_llama_is_rounded_up_as_its_engine_does() -> None:
    ffn = {"ffn_mult": 1.0, "no_op": False}
    stated = {"hidden_size": 8192, "block_configs": [{"attention": {}, "ffn": ffn}]}

    (block,) = read_blocks(Config(stated, {}))

    assert (block.intermediate_size, block.attends) == (5632, False)  # 5461 to 256


def test_what_the_language_model_states_wins_over_what_nests_it() -> None:
    model = plain("meta-llama/Meta-Llama-3.1-8B")
    nested = {**model.config, "hidden_size": 64, "text_config": dict(model.config)}

    assert make_profile(replace(model, config=nested))[0].hidden_size == 4096


@cases("a_mixture_of_experts_is_recognised_without_a_row_of_its_own")
def test_a_mixture_of_experts_is_recognised_without_a_row_of_its_own(
    name: str, experts: tuple[int, int, int]
) -> None:
    profile = profile_of(name)

    assert (profile.experts, profile.experts_per_token, profile.expert_size) == experts


def test_the_same_language_model_with_a_vision_tower_costs_the_same_a_token() -> None:
    """Qwen3-VL-30B-A3B was planned as dense: 22.8 ms a token where Qwen3-30B-A3B took 4.4."""
    text, seeing = profile_of("Qwen/Qwen3-30B-A3B"), profile_of("Qwen/Qwen3-VL-30B-A3B-Instruct")

    assert seeing.active_parameters - seeing.tower_bytes // 2 == text.active_parameters
    assert seeing.kv_bytes_per_token == text.kv_bytes_per_token


def test_experts_that_config_json_does_not_count_make_a_model_unknown() -> None:
    model = plain("Qwen/Qwen3-30B-A3B")
    silent = {
        key: value
        for key, value in model.config.items()
        if key not in ("num_experts", "num_experts_per_tok")
    } | {"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3"}

    profile, findings = make_profile(replace(model, config=silent))

    assert not profile.known
    assert [finding.code for finding in findings] == ["experts-unknown"]
    assert profile.active_parameters == profile.parameters


def test_a_quantization_that_a_multimodal_config_nests_is_read() -> None:
    """Kimi-K2.5 states that its experts have four bits within text_config alone."""
    model = plain("Qwen/Qwen3-30B-A3B")
    config = config_of("moonshotai/Kimi-K2.5")
    stated = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    nested = config | {"text_config": config["text_config"] | {"quantization_config": stated}}

    assert make_profile(replace(model, config=config))[0].quantization == ""
    assert make_profile(replace(model, config=nested))[0].quantization == "compressed-tensors"


@cases("unknown_caches")
def test_what_is_not_known_of_a_cache_is_said(
    name: str, changed: dict[str, Any], unknown: list[str]
) -> None:
    model = plain(name)

    profile, findings = make_profile(replace(model, config={**model.config, **changed}))

    assert [finding.code for finding in findings] == ["memory-unknown"]
    assert (profile.known, profile.unknown_cache) == (False, tuple(unknown))


def test_a_number_of_layers_that_no_model_has_is_refused() -> None:
    model = plain("meta-llama/Meta-Llama-3.1-8B")

    _, findings = make_profile(replace(model, config={**model.config, "num_hidden_layers": 5000}))

    assert findings[0].message == "config.json: num_hidden_layers is 5000, not at most 4096"


KEYS = TABLES["keys"]


@given(name=st.sampled_from(sorted(models())), data=st.data())
def test_no_damaged_config_of_a_published_model_raises(name: str, data: st.DataObject) -> None:
    config = config_of(name)
    part = config.get("text_config", {})
    change = data.draw(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
    nested = {"text_config": part | change} if part and data.draw(st.booleans()) else change

    profile, findings = make_profile(config_only(config | nested))

    if not errors_in(findings):
        assert min(profile.heads, profile.kv_heads, profile.head_dim, profile.vocab_size) > 0
        assert profile.kv_bytes_per_token >= 0
        assert profile.state_bytes >= 0
        assert profile.active_parameters <= profile.parameters
