"""States of constant size that linear layers keep of a sequence: Mamba, delta rules, convolutions.

Shapes are those of vLLM 0.32.0, model_executor/layers/mamba/mamba_utils.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packager.models.architectures.reading import Config
from packager.models.architectures.spellings import Architecture

KV_ELEMENT_BYTES = 2  # caches are kept in the 16-bit type that the engine computes with
MAMBA_1_CHUNK = 2048  # tokens: vLLM 0.27.1 config/model.py get_mamba_chunk_size
LONG_ELEMENT_BYTES = 4  # the state of delta rules and lightning attention, in 32 bits


@dataclass(frozen=True, slots=True)
class State:
    """State of one layer and sequence, and the head counts that tp_degree must divide."""

    layer_bytes: int
    split_counts: tuple[int, ...] = ()
    chunk_tokens: int = 0  # that its kernel computes at once: blocks are a multiple of it
    mixed_elements: int = 0  # of its convolution, in the type that caches have
    recurrent_elements: int = 0  # of the rest, where an engine's option sets their type


def find_state(config: Config, row: Architecture, numbers: Mapping[str, int]) -> State | None:
    """Recognise the kind of a model's linear layers by the keys that describe them."""
    if row.linear or config.number("linear_num_value_heads", needed=False):
        return _delta_net(config)
    if config.part("linear_attn_config") or config.count("linear_head_dim"):
        return _kimi_delta(config)
    if config.listed("attn_type_list") is not None or config.count("layer_group_size"):
        heads, size = numbers["heads"], numbers["head_dim"]
        return State(heads * size * size * LONG_ELEMENT_BYTES, (heads,))
    if config.count("conv_L_cache"):
        taps = max(0, config.count("conv_L_cache") - 1)
        return _typed(numbers["hidden_size"] * taps, 0, 0)
    if config.count("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"):
        return _mamba_2(config, numbers)
    if config.count("state_size") and config.count("num_heads"):
        return _mamba_2(config, numbers)
    if config.count("state_size", "mamba_d_state", "ssm_state_size"):
        return _mamba_1(config, row, numbers)
    return None


def _delta_net(config: Config) -> State:
    keys, values = config.number("linear_num_key_heads"), config.number("linear_num_value_heads")
    key_dim = config.number("linear_key_head_dim")
    value_dim = config.number("linear_value_head_dim")
    taps = max(0, config.number("linear_conv_kernel_dim") - 1)
    mixed = (2 * keys * key_dim + values * value_dim) * taps
    element = _element_bytes(config, "mamba_ssm_dtype")  # Qwen3.5 states 32 bits
    return _typed(mixed, values * key_dim * value_dim, element, split_counts=(keys, values))


def _typed(mixed: int, recurrent: int, element_bytes: int, **others: Any) -> State:
    """Return a state whose recurrent part has elements of a type of its own."""
    return State(
        mixed * KV_ELEMENT_BYTES + recurrent * element_bytes,
        mixed_elements=mixed,
        recurrent_elements=recurrent,
        **others,
    )


def _element_bytes(config: Config, *keys: str) -> int:
    """Return the bytes of an element; without a key, engines keep what they compute with."""
    is_long = any(config.word(key) == "float32" for key in keys)
    return LONG_ELEMENT_BYTES if is_long else KV_ELEMENT_BYTES


def _kimi_delta(config: Config) -> State:
    """Read `linear_attn_config`, or the names that the class in transformers has."""
    own = Config(config.part("linear_attn_config"), {})
    heads = own.count("num_heads") or config.count("linear_num_heads")
    size = own.count("head_dim") or config.count("linear_head_dim")
    taps = own.count("short_conv_kernel_size") or config.count("linear_conv_kernel_dim") or 4
    taps = max(0, taps - 1)
    config.findings += own.findings
    mixed = 3 * heads * size * taps
    whole = mixed * KV_ELEMENT_BYTES + heads * size * size * LONG_ELEMENT_BYTES
    return State(whole, (heads,) if heads else (), mixed_elements=mixed)


def _mamba_2(config: Config, numbers: Mapping[str, int]) -> State:
    heads = config.count("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    size = config.count("mamba_d_head", "mamba_head_dim", "mamba_headdim", assumed=False)
    inner = config.count("mamba_d_ssm", assumed=False)
    inner = inner or (heads * size if size else _expanded(config, numbers))
    size = size or (inner // heads if heads else 0)
    groups = config.count("mamba_n_groups", "mamba_ngroups", "n_groups")
    states = config.count("mamba_d_state", "ssm_state_size", "state_size")
    taps = max(0, config.count("mamba_d_conv", "conv_kernel") - 1)
    mixed = (inner + 2 * groups * states) * taps
    element = _element_bytes(config, "mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    chunk = config.count("mamba_chunk_size", "chunk_size")
    recurrent = heads * size * states
    return _typed(mixed, recurrent, element, split_counts=(heads,), chunk_tokens=chunk)


def _mamba_1(config: Config, row: Architecture, numbers: Mapping[str, int]) -> State:
    is_all = row.state == "all"  # Jamba's intermediate size is that of its MLP
    inner = numbers["intermediate_size"] if is_all else _expanded(config, numbers)
    states = config.count("state_size", "mamba_d_state", "ssm_state_size")
    taps = max(0, config.count("mamba_d_conv", "conv_kernel") - 1)
    return _typed(inner * taps, inner * states, KV_ELEMENT_BYTES, chunk_tokens=MAMBA_1_CHUNK)


def _expanded(config: Config, numbers: Mapping[str, int]) -> int:
    return numbers["hidden_size"] * (config.count("mamba_expand", "expand", "expand_factor") or 2)
