"""Models of the start-up logs, as published config.json and headers of the same sizes.

Experts lie in one tensor a layer, a tower in one tensor: only sizes and kinds matter to memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

from packager.core.model import ModelFiles, ModelRef, TensorInfo
from tests.support.doubles.models import BYTES_PER_ELEMENT

SIGLIP = 417_000_000  # parameters of 27 layers of 1152, patches of 14
MOONVIT = 413_000_000
PIXTRAL = 403_000_000
QWEN_VISION = 456_000_000  # 27 layers of 1152, and what merges patches
LLAMA_4_VISION = 850_000_000

FP8 = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "float", "dynamic": True},
        }
    },
    "ignore": ["lm_head"],
}
INT8: dict[str, Any] = FP8 | {
    "format": "int-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "int", "dynamic": True},
        }
    },
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
MXFP4 = {"quant_method": "mxfp4"}
BLOCK_FP8 = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "weight_block_size": [128, 128],
}


TYPES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "GraniteForCausalLM": "granite",
    "MistralForCausalLM": "mistral",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForConditionalGeneration": "gemma3",
    "GptOssForCausalLM": "gpt_oss",
    "Qwen3_5ForConditionalGeneration": "qwen3_5",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "MixtralForCausalLM": "mixtral",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "KimiVLForConditionalGeneration": "kimi_vl",
    "GemmaForCausalLM": "gemma",
    "LlavaNextForConditionalGeneration": "llava_next",
    "PhiForCausalLM": "phi",
    "Phi3ForCausalLM": "phi3",
    "Mistral3ForConditionalGeneration": "mistral3",
    "Llama4ForConditionalGeneration": "llama4",
}


def _config(
    architecture: str,
    hidden: int,
    inner: int,
    layers: int,
    heads: int,
    kv_heads: int,
    vocab: int,
    head_dim: int = 0,
    **more: Any,
) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": TYPES.get(architecture, ""),
        "torch_dtype": "bfloat16",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim or hidden // heads,
        "vocab_size": vocab,
        "max_position_embeddings": 131072,
    } | more


def _nested(architecture: str, text: dict[str, Any]) -> dict[str, Any]:
    outer = ("architectures", "model_type")
    inner = {key: value for key, value in text.items() if key not in outer}
    return {
        "architectures": [architecture],
        "model_type": TYPES[architecture],
        "torch_dtype": "bfloat16",
        "text_config": inner,
        "vision_config": {"hidden_size": 1152},
    }


def _alternating(kinds: tuple[str, ...], layers: int) -> list[str]:
    return [kinds[layer % len(kinds)] for layer in range(layers)]


LLAMA = "LlamaForCausalLM"
QWEN_2 = "Qwen2ForCausalLM"
QWEN_3 = "Qwen3ForCausalLM"
SLIDING_5 = ("sliding_attention",) * 5 + ("full_attention",)
LINEAR_3 = ("linear_attention",) * 3 + ("full_attention",)
TIED = {"tie_word_embeddings": True}

LLAMA_8B = _config(LLAMA, 4096, 14336, 32, 32, 8, 128256)
LLAMA_70B = _config(LLAMA, 8192, 28672, 80, 64, 8, 128256)
QWEN_7B = _config(QWEN_2, 3584, 18944, 28, 28, 4, 152064)
QWEN_72B = _config(QWEN_2, 8192, 29568, 80, 64, 8, 152064)
GRANITE_2B = _config("GraniteForCausalLM", 2048, 8192, 40, 32, 8, 49155, **TIED)
MISTRAL_24B = _config("MistralForCausalLM", 5120, 32768, 40, 32, 8, 131072, 128)
DEEPSEEK_LITE = {
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
}


def _gemma_2(hidden: int, inner: int, layers: int, heads: int, head_dim: int) -> dict[str, Any]:
    return _config(
        "Gemma2ForCausalLM", hidden, inner, layers, heads, heads // 2, 256000, head_dim,
        sliding_window=4096, **TIED,
    )  # fmt: skip


def _gemma_3(hidden: int, inner: int, layers: int, heads: int, head_dim: int) -> dict[str, Any]:
    text = _config(
        "", hidden, inner, layers, heads, heads // 2, 262208, head_dim,
        sliding_window=1024, layer_types=_alternating(SLIDING_5, layers), **TIED,
    )  # fmt: skip
    return _nested("Gemma3ForConditionalGeneration", text)


def _gpt_oss(layers: int, experts: int) -> dict[str, Any]:
    return _config(
        "GptOssForCausalLM", 2880, 2880, layers, 64, 8, 201088, 64,
        sliding_window=128, num_local_experts=experts, num_experts_per_tok=4,
        layer_types=_alternating(("sliding_attention", "full_attention"), layers),
        quantization_config=MXFP4,
    )  # fmt: skip


# name → config, parameters of the tower
MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "codellama-7b": (_config(LLAMA, 4096, 11008, 32, 32, 32, 32016), 0),
    "llama-3.1-8b": (LLAMA_8B, 0),
    "llama-3.1-8b-fp8": (LLAMA_8B | {"quantization_config": FP8}, 0),
    "llama-3.1-8b-w8a8": (LLAMA_8B | {"quantization_config": INT8}, 0),
    "llama-3.1-8b-w4a16": (LLAMA_8B | {"quantization_config": GPTQ}, 0),
    "llama-3.3-70b-fp8": (LLAMA_70B | {"quantization_config": FP8}, 0),
    "llama-3.3-70b-w8a8": (LLAMA_70B | {"quantization_config": INT8}, 0),
    "qwen2.5-7b": (QWEN_7B, 0),
    "qwen2.5-7b-fp8": (QWEN_7B | {"quantization_config": FP8}, 0),
    "qwen2.5-7b-w8a8": (QWEN_7B | {"quantization_config": INT8}, 0),
    "qwen2.5-72b": (QWEN_72B, 0),
    "kimi-dev-72b": (QWEN_72B, 0),
    "qwen3-0.6b": (_config(QWEN_3, 1024, 3072, 28, 16, 8, 151936, 128, **TIED), 0),
    "qwen3-8b": (_config(QWEN_3, 4096, 12288, 36, 32, 8, 151936), 0),
    "qwen3-14b": (_config(QWEN_3, 5120, 17408, 40, 40, 8, 151936), 0),
    "qwen3-32b": (_config(QWEN_3, 5120, 25600, 64, 64, 8, 151936, 128), 0),
    "qwen3.5-9b": (
        _nested("Qwen3_5ForConditionalGeneration",
                _config("", 4096, 12288, 32, 16, 4, 248320, 256,
                        layer_types=_alternating(LINEAR_3, 32), linear_num_key_heads=16,
                        linear_num_value_heads=32, linear_key_head_dim=128,
                        linear_value_head_dim=128, linear_conv_kernel_dim=4)),
        QWEN_VISION,
    ),
    "qwen1.5-moe-a2.7b": (
        _config("Qwen2MoeForCausalLM", 2048, 5632, 24, 16, 16, 151936, num_experts=60,
                num_experts_per_tok=4, moe_intermediate_size=1408,
                shared_expert_intermediate_size=5632), 0,
    ),
    "qwen3-30b-a3b": (
        _config("Qwen3MoeForCausalLM", 2048, 6144, 48, 32, 4, 151936, 128, num_experts=128,
                num_experts_per_tok=8, moe_intermediate_size=768), 0,
    ),
    "qwen3-235b-a22b-fp8": (
        _config("Qwen3MoeForCausalLM", 4096, 12288, 94, 64, 4, 151936, 128, num_experts=128,
                num_experts_per_tok=8, moe_intermediate_size=1536,
                quantization_config=BLOCK_FP8), 0,
    ),
    "mixtral-8x7b": (
        _config("MixtralForCausalLM", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8,
                num_experts_per_tok=2), 0,
    ),
    "deepseek-v2-lite": (
        _config("DeepseekV2ForCausalLM", 2048, 10944, 27, 16, 16, 102400, **DEEPSEEK_LITE), 0,
    ),
    "kimi-vl-a3b": (
        _nested("KimiVLForConditionalGeneration",
                _config("", 2048, 11264, 27, 16, 16, 163840, **DEEPSEEK_LITE)),
        MOONVIT + 31_000_000,
    ),
    "gpt-oss-20b": (_gpt_oss(24, 32), 0),
    "gpt-oss-120b": (_gpt_oss(36, 128), 0),
    "gemma-7b": (_config("GemmaForCausalLM", 3072, 24576, 28, 16, 16, 256000, 256, **TIED), 0),
    "gemma-2-2b": (_gemma_2(2304, 9216, 26, 8, 256), 0),
    "gemma-2-9b": (_gemma_2(3584, 14336, 42, 16, 256), 0),
    "gemma-2-27b": (_gemma_2(4608, 36864, 46, 32, 128), 0),
    "gemma-3-4b": (_gemma_3(2560, 10240, 34, 8, 256), SIGLIP),
    "gemma-3-12b": (_gemma_3(3840, 15360, 48, 16, 256), SIGLIP),
    "gemma-3-27b": (_gemma_3(5376, 21504, 62, 32, 128), SIGLIP),
    "granite-3.1-2b": (GRANITE_2B, 0),
    "granite-3.1-8b": (
        _config("GraniteForCausalLM", 4096, 12800, 40, 32, 8, 49155, **TIED), 0,
    ),
    "granite-vision-3.3-2b": (
        _nested("LlavaNextForConditionalGeneration", GRANITE_2B), SIGLIP + 12_000_000,
    ),
    "phi-2": (_config("PhiForCausalLM", 2560, 10240, 32, 32, 32, 51200), 0),
    "phi-4": (_config("Phi3ForCausalLM", 5120, 17920, 40, 40, 10, 100352), 0),
    "mistral-small-3.1-24b": (
        _nested("Mistral3ForConditionalGeneration", MISTRAL_24B), PIXTRAL + 36_000_000,
    ),
    "mistral-small-3.1-24b-w8a8": (
        _nested("Mistral3ForConditionalGeneration", MISTRAL_24B) | {"quantization_config": INT8},
        PIXTRAL + 36_000_000,
    ),
    "llama-4-scout": (
        _nested("Llama4ForConditionalGeneration",
                _config("", 5120, 8192, 48, 40, 8, 202048, 128, num_local_experts=16,
                        num_experts_per_tok=1, intermediate_size_mlp=16384,
                        interleave_moe_layer_step=1, attention_chunk_size=8192)),
        LLAMA_4_VISION,
    ),
}  # fmt: skip


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
