"""Models of the start-up logs, as published config.json and headers of the same sizes.

Experts lie in one tensor a layer, a tower in one tensor: only sizes and kinds matter to memory.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

from packager.core.model import ModelFiles, ModelRef, TensorInfo
from tests.support.doubles.models import BYTES_PER_ELEMENT
from tests.support.places import DATA

TABLE = tomllib.loads((DATA / "sizing" / "startup_models.toml").read_text("utf-8"))


def _config(row: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json of a row of the table."""
    outer = {"architectures": [row["architecture"]], "model_type": row["model_type"]}
    text = {"torch_dtype": "bfloat16", "max_position_embeddings": 131072, **row["sizes"]}
    text |= row.get("more", {})
    if kinds := row.get("layers"):
        layers = range(text["num_hidden_layers"])
        text["layer_types"] = [kinds[layer % len(kinds)] for layer in layers]
    if "nested" in row:
        vision = {"hidden_size": 1152}
        outer |= {"torch_dtype": "bfloat16", "text_config": text, "vision_config": vision}
    else:
        outer |= text
    if "quantization" in row:
        outer["quantization_config"] = TABLE["quantizations"][row["quantization"]]
    return outer


# name → config, parameters of the tower
MODELS: dict[str, tuple[dict[str, Any], int]] = {
    row["name"]: (_config(row), row.get("tower", 0)) for row in TABLE["models"]
}


@cache
def startup_model(name: str) -> ModelFiles:
    """Make the headers-only model of a log."""
    config, tower = MODELS[name]
    text = config.get("text_config", config)
    prefix = "language_model." if "text_config" in config else ""
    tensors = list(_tensors(config, text, prefix))
    if tower:
        tensors.append(_tensor("vision_tower.whole.weight", "BF16", (tower,)))
    return ModelFiles(
        ref=ModelRef(source="hub", name=f"logs/{name}"),
        files=(),
        config=config,
        tensors=tuple(tensors),
    )


def _tensors(config: dict[str, Any], text: dict[str, Any], prefix: str) -> Iterator[TensorInfo]:
    hidden, vocab = text["hidden_size"], text["vocab_size"]
    quantization = config.get("quantization_config", {})
    yield _tensor(f"{prefix}model.embed_tokens.weight", "BF16", (vocab, hidden))
    for layer in range(text["num_hidden_layers"]):
        stem = f"{prefix}model.layers.{layer}"
        yield _tensor(f"{stem}.input_layernorm.weight", "BF16", (hidden,))
        yield _tensor(f"{stem}.post_attention_layernorm.weight", "BF16", (hidden,))
        attention = {} if quantization.get("quant_method") == "mxfp4" else quantization
        kind = text.get("layer_types", ["full_attention"] * (layer + 1))[layer]
        matrices = _linear_attention(text) if kind == "linear_attention" else _attention(text)
        for name, outputs, inputs in matrices:
            yield from _linear(f"{stem}.{name}", outputs, inputs, attention)
        yield from _feed_forward(config, text, stem, layer)
    yield _tensor(f"{prefix}model.norm.weight", "BF16", (hidden,))
    if not text.get("tie_word_embeddings"):
        yield _tensor(f"{prefix}lm_head.weight", "BF16", (vocab, hidden))


def _attention(text: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    if "kv_lora_rank" in text:
        nope, rope, value = (
            text[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        )
        yield "self_attn.q_proj", heads * (nope + rope), hidden
        yield "self_attn.kv_a_proj_with_mqa", text["kv_lora_rank"] + rope, hidden
        yield "self_attn.kv_b_proj", heads * (nope + value), text["kv_lora_rank"]
        yield "self_attn.o_proj", hidden, heads * value
        return
    size = text["head_dim"]
    gated = 2 if "linear_num_key_heads" in text else 1  # Qwen3.5 gates its attention
    yield "self_attn.q_proj", gated * heads * size, hidden
    yield "self_attn.k_proj", text["num_key_value_heads"] * size, hidden
    yield "self_attn.v_proj", text["num_key_value_heads"] * size, hidden
    yield "self_attn.o_proj", hidden, heads * size


def _linear_attention(text: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    hidden = text["hidden_size"]
    keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
    yield "linear_attn.in_proj_qkv", 2 * keys + values, hidden
    yield "linear_attn.in_proj_z", values, hidden
    yield "linear_attn.in_proj_ba", 2 * text["linear_num_value_heads"], hidden
    yield "linear_attn.out_proj", hidden, values


def _feed_forward(
    config: dict[str, Any], text: dict[str, Any], stem: str, layer: int
) -> Iterator[TensorInfo]:
    hidden, inner = text["hidden_size"], text["intermediate_size"]
    quantization = config.get("quantization_config", {})
    experts = next(
        (text[k] for k in ("num_experts", "num_local_experts", "n_routed_experts") if k in text), 0
    )
    dense = not experts or layer < text.get("first_k_dense_replace", 0)
    if dense:
        gated = config["architectures"][0] != "PhiForCausalLM"
        names = ("gate_proj", "up_proj") if gated else ("fc1",)
        for name in names:
            yield from _linear(f"{stem}.mlp.{name}", inner, hidden, quantization)
        yield from _linear(f"{stem}.mlp.down_proj", hidden, inner, quantization)
        return
    size = text.get("moe_intermediate_size", inner)
    shared = text.get("n_shared_experts", 0) * size or text.get(
        "shared_expert_intermediate_size", inner if "intermediate_size_mlp" in text else 0
    )
    yield _tensor(f"{stem}.mlp.gate.weight", "BF16", (experts, hidden))
    if quantization.get("quant_method") == "mxfp4":
        for name, outputs, inputs in (("gate_up", 2 * size, hidden), ("down", hidden, size)):
            part = f"{stem}.mlp.experts.{name}_proj"
            yield _tensor(f"{part}_blocks", "U8", (experts, outputs, inputs // 32, 16))
            yield _tensor(f"{part}_scales", "U8", (experts, outputs, inputs // 32))
            yield _tensor(f"{part}_bias", "BF16", (experts, outputs))
    else:
        dtype = "F8_E4M3" if quantization else "BF16"
        yield _tensor(f"{stem}.mlp.experts.gate_up_proj", dtype, (experts, 2 * size, hidden))
        yield _tensor(f"{stem}.mlp.experts.down_proj", dtype, (experts, hidden, size))
    if shared:
        yield _tensor(f"{stem}.mlp.shared_expert.gate_up_proj.weight", "BF16", (2 * shared, hidden))
        yield _tensor(f"{stem}.mlp.shared_expert.down_proj.weight", "BF16", (hidden, shared))


def _linear(
    stem: str, outputs: int, inputs: int, quantization: dict[str, Any]
) -> Iterator[TensorInfo]:
    method = quantization.get("quant_method", "")
    if not method:
        yield _tensor(f"{stem}.weight", "BF16", (outputs, inputs))
    elif method == "gptq":
        yield _tensor(f"{stem}.qweight", "I32", (inputs // 8, outputs))
        yield _tensor(f"{stem}.qzeros", "I32", (inputs // 128, outputs // 8))
        yield _tensor(f"{stem}.scales", "F16", (inputs // 128, outputs))
    else:
        dtype = "I8" if quantization.get("format") == "int-quantized" else "F8_E4M3"
        yield _tensor(f"{stem}.weight", dtype, (outputs, inputs))
        yield _tensor(f"{stem}.weight_scale", "BF16", (outputs, 1))


def _tensor(name: str, dtype: str, shape: tuple[int, ...]) -> TensorInfo:
    size = BYTES_PER_ELEMENT[dtype] * math.prod(shape)
    return TensorInfo(name=name, dtype=dtype, shape=shape, size=size, file="model.safetensors")
