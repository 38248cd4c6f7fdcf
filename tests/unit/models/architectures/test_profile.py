from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from packager.core.findings import errors_in
from packager.core.model import ModelFiles
from packager.models.architectures.profile import make_profile
from packager.models.architectures.quantized import Quantized
from packager.models.architectures.sums import add_up
from packager.models.architectures.towers import Tower, read_tower
from tests.support.cases import cases, read_tables
from tests.support.headers import (
    GEMMA_2_2B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    TINY,
    awq_model_of,
    model_of,
    tensor,
)

TABLES = read_tables(__file__)


def codes(model: ModelFiles) -> list[str]:
    return [finding.code for finding in make_profile(model)[1]]


def test_a_llama_is_read_from_its_config_and_headers() -> None:
    profile, findings = make_profile(model_of(LLAMA_3_8B))

    assert findings == ()
    assert profile.parameters == 8_030_261_248
    assert profile.weight_bytes == 16_060_522_496
    assert (profile.dtype, profile.head_dim, profile.kv_heads) == ("bf16", 128, 8)
    assert profile.kv_bytes_per_token == 131_072  # 2 * 32 layers * 8 heads * 128 * 2 bytes


def test_a_head_size_that_is_stated_wins_over_the_quotient() -> None:
    profile, _ = make_profile(model_of(GEMMA_2_2B))

    assert profile.head_dim == 256


def test_as_many_key_value_heads_as_heads_when_none_are_stated() -> None:
    config = TINY | {"num_key_value_heads": 4}
    unstated = {key: value for key, value in config.items() if key != "num_key_value_heads"}

    profile, _ = make_profile(replace(model_of(config), config=unstated))

    assert profile.kv_heads == 4


def test_a_multimodal_config_nests_the_numbers() -> None:
    nested = {key: value for key, value in TINY.items() if key != "architectures"}
    config = {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "model_type": "mistral3",
        "text_config": nested,
    }

    profile, findings = make_profile(replace(model_of(TINY), config=config))

    assert findings == ()
    assert (profile.architecture, profile.hidden_size) == ("Mistral3ForConditionalGeneration", 256)


def test_packed_weights_are_counted_one_by_one() -> None:
    whole, _ = make_profile(model_of(LLAMA_3_70B))
    packed, findings = make_profile(awq_model_of(LLAMA_3_70B))

    assert findings == ()
    assert packed.parameters == whole.parameters == 70_553_706_496
    assert (packed.quantization, packed.weight_format, packed.group_size) == ("awq", "w4a16", 128)
    assert packed.dtype == "fp16"
    assert packed.weight_bytes < 0.3 * whole.weight_bytes


@cases("the_format_of_a_quantized_checkpoint_is_recognised")
def test_the_format_of_a_quantized_checkpoint_is_recognised(
    stated: dict[str, Any], weight_format: str
) -> None:
    profile, findings = make_profile(model_of(TINY | {"quantization_config": stated}))

    assert profile.quantization == stated["quant_method"]
    assert profile.weight_format == weight_format
    assert findings == ()


def test_three_bit_weights_that_do_not_fill_a_word_evenly_are_counted_exactly() -> None:
    """GPTQ packs 32 weights of 3 bits into 3 words: 24 rows of words are 256 rows of weights."""
    config = {"quant_method": "gptq", "bits": 3, "group_size": 128}
    model = model_of(TINY | {"quantization_config": config}, dtype="F16")
    packed = tensor("model.layers.0.mlp.up_proj.qweight", "I32", (24, 768))

    without, _ = make_profile(model)
    profile, _ = make_profile(replace(model, tensors=(*model.tensors, packed)))

    assert profile.parameters - without.parameters == 256 * 768


def test_parameters_are_not_guessed_when_words_do_not_tell_how_many_they_hold() -> None:
    model = model_of(TINY | {"quantization_config": {"quant_method": "gptq"}})
    packed = tensor("model.layers.0.mlp.up_proj.qweight", "I32", (32, 768))

    profile, _ = make_profile(replace(model, tensors=(*model.tensors, packed)))

    assert profile.parameters == 0


def test_an_unknown_architecture_is_planned_with_a_warning() -> None:
    profile, findings = make_profile(model_of(TINY | {"architectures": ["NewForCausalLM"]}))

    assert profile.architecture == "NewForCausalLM"
    assert [(f.severity, f.code) for f in findings] == [("warning", "architecture-unknown")]


@cases("a_wrong_config_is_said")
def test_a_wrong_config_is_said(change: str, code: str) -> None:
    assert codes(replace(model_of(TINY), config=TINY | json.loads(change))) == [code]


@cases("a_number_that_is_not_stated_is_not_said_to_be")
def test_a_number_that_is_not_stated_is_not_said_to_be(key: str, message: str) -> None:
    """config.json was said to say 32 layers where it states none."""
    config = {name: value for name, value in TINY.items() if name != key}

    _, findings = make_profile(replace(model_of(TINY), config=config))

    assert [finding.message for finding in findings] == [message]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    config = TINY | {"hidden_size": "x", "vocab_size": 0, "architectures": None}

    assert (
        codes(replace(model_of(TINY), config=config))
        == TABLES["everything_that_is_wrong_is_said_at_once"]
    )


def test_a_long_value_is_shown_shortened_and_escaped() -> None:
    _, findings = make_profile(replace(model_of(TINY), config=TINY | {"vocab_size": "\x1b" * 99}))

    assert "\x1b" not in findings[0].message
    assert len(findings[0].message) < 120


def test_a_model_without_weights_cannot_be_served() -> None:
    assert codes(replace(model_of(TINY), tensors=())) == ["no-weights"]


def test_weights_of_an_unheard_of_type_are_not_served() -> None:
    model = model_of(TINY)
    odd = tuple(tensor._replace(dtype="F4") for tensor in model.tensors)
    config = {key: value for key, value in TINY.items() if key != "torch_dtype"}

    assert codes(replace(model, tensors=odd, config=config)) == ["dtype-unknown"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from([*TINY, "text_config", "quantization_config", "head_dim", "dtype"]), JSON
    )
)
def test_no_config_raises_or_gives_a_profile_that_cannot_be(change: dict[str, Any]) -> None:
    profile, findings = make_profile(replace(model_of(TINY), config=TINY | change))

    if not errors_in(findings):
        assert min(profile.heads, profile.kv_heads, profile.head_dim, profile.vocab_size) > 0
        assert profile.heads % profile.kv_heads == 0
        assert profile.kv_bytes_per_token > 0


def test_towers_and_experts_are_summed_apart_from_the_rest() -> None:
    model = model_of(TINY)
    tower = (
        tensor("vision_tower.encoder.layers.0.mlp.weight", "BF16", (16, 16)),
        tensor("multi_modal_projector.linear.weight", "BF16", (8, 16)),
    )
    experts = (tensor("model.layers.0.mlp.experts.3.up_proj.weight", "BF16", (4, 16)),)

    profile, _ = make_profile(replace(model, tensors=(*model.tensors, *tower, *experts)))
    plain, _ = make_profile(model)

    assert profile.tower_bytes == 2 * 16 * 16 + 2 * 8 * 16
    assert profile.outside_bytes == plain.outside_bytes + profile.tower_bytes
    assert profile.expert_bytes == 2 * 4 * 16
    assert (plain.tower_bytes, plain.expert_bytes) == (0, 0)


def test_layers_of_a_tower_stand_for_no_layer_that_the_weights_lack() -> None:
    names = read_tables(__file__)["names_in_a_tower"]

    sums = add_up((tensor(name, "BF16", (16, 16)) for name in names), frozenset(), 2, Quantized())

    assert sums.layers == 1
    assert sums.linear_parameters == 16 * 16
    assert sums.tower_bytes == 2 * 2 * 16 * 16


@cases("towers")
def test_a_tower_is_read_as_its_config_states_it(
    config: dict[str, Any], patch_bytes: int, patches: int
) -> None:
    assert read_tower(config) == Tower(patch_bytes, patches)
