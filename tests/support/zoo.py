"""Released models of every architecture, as config.json and headers alone.

Numbers are those of the published config.json; layers are written out, so
that parameters can be held against what the publishers say.
"""

from __future__ import annotations

import functools
from typing import Any

from packager.core.model import ModelFiles, ModelRef, TensorInfo
from tests.support.headers import LLAMA_3_8B, tensor

Shapes = dict[str, tuple[str, tuple[int, ...]]]

MIXTRAL_8X7B = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "sliding_window": None,
}

QWEN3_30B_A3B = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}

QWEN3_NEXT_80B = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
}

GPT_OSS_20B = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
}

DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "first_k_dense_replace": 3,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    },
}

LLAMA_3_1_405B = LLAMA_3_8B | {
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "max_position_embeddings": 131072,
}

FALCON_7B = {
    "architectures": ["FalconForCausalLM"],
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "num_kv_heads": 71,
    "multi_query": True,
    "new_decoder_architecture": False,
    "vocab_size": 65024,
}

FALCON_40B = FALCON_7B | {
    "hidden_size": 8192,
    "num_hidden_layers": 60,
    "num_attention_heads": 128,
    "num_kv_heads": 8,
    "new_decoder_architecture": True,
}

FALCON_40B_OLD = {
    "architectures": ["RWForCausalLM"],
    "model_type": "RefinedWeb",
    "hidden_size": 8192,
    "n_layer": 60,
    "n_head": 128,
    "n_head_kv": 8,
    "vocab_size": 65024,
}

GPT_2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": None,
    "n_positions": 1024,
    "vocab_size": 50257,
}

GPT_NEOX_20B = {
    "architectures": ["GPTNeoXForCausalLM"],
    "model_type": "gpt_neox",
    "hidden_size": 6144,
    "intermediate_size": 24576,
    "num_hidden_layers": 44,
    "num_attention_heads": 64,
    "max_position_embeddings": 2048,
    "vocab_size": 50432,
}

BLOOM_176B = {
    "architectures": ["BloomForCausalLM"],
    "model_type": "bloom",
    "n_embed": 14336,
    "n_layer": 70,
    "num_attention_heads": 112,
    "seq_length": 2048,
    "vocab_size": 250880,
}

COMMAND_R = {
    "architectures": ["CohereForCausalLM"],
    "model_type": "cohere",
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "max_position_embeddings": 8192,
    "model_max_length": 131072,
    "vocab_size": 256000,
}

PHI_2 = {
    "architectures": ["PhiForCausalLM"],
    "model_type": "phi",
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "max_position_embeddings": 2048,
    "vocab_size": 51200,
}

# Gemma3TextConfig's defaults are left out, as in the published file.
GEMMA_3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
}

MISTRAL_7B_V0_1 = LLAMA_3_8B | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
}


def config_only(config: dict[str, Any]) -> ModelFiles:
    """A model whose one tensor says no more than its element type."""
    return files(config, {"norm.weight": ("BF16", (8,))})


def files(config: dict[str, Any], shapes: Shapes) -> ModelFiles:
    return ModelFiles(
        ref=ModelRef(source="hub", name="org/model"),
        files=(),
        config=config,
        tensors=tuple(tensor(name, dtype, shape) for name, (dtype, shape) in shapes.items()),
    )


@functools.cache
def mixtral() -> ModelFiles:
    hidden, inner, vocabulary = 4096, 14336, 32000
    shapes = _ends(hidden, vocabulary)
    for layer in range(32):
        at = f"model.layers.{layer}"
        shapes |= _attention(at, hidden, q=hidden, kv=1024)
        shapes[f"{at}.block_sparse_moe.gate.weight"] = ("BF16", (8, hidden))
        for expert in range(8):
            for name, shape in (
                ("w1", (inner, hidden)),
                ("w2", (hidden, inner)),
                ("w3", (inner, hidden)),
            ):
                shapes[f"{at}.block_sparse_moe.experts.{expert}.{name}.weight"] = ("BF16", shape)
    return files(MIXTRAL_8X7B, shapes)


@functools.cache
def qwen3_moe() -> ModelFiles:
    hidden = 2048
    shapes = _ends(hidden, 151936)
    for layer in range(48):
        at = f"model.layers.{layer}"
        shapes |= _attention(at, hidden, q=4096, kv=512)
        shapes[f"{at}.mlp.gate.weight"] = ("BF16", (128, hidden))
        for expert in range(128):
            shapes |= _mlp(f"{at}.mlp.experts.{expert}", hidden, 768)
    return files(QWEN3_30B_A3B, shapes)


@functools.cache
def gpt_oss() -> ModelFiles:
    hidden = 2880
    shapes = _ends(hidden, 201088)
    for layer in range(24):
        at = f"model.layers.{layer}"
        shapes |= _attention(at, hidden, q=4096, kv=512)
        shapes |= {
            f"{at}.mlp.router.weight": ("BF16", (32, hidden)),
            f"{at}.mlp.experts.gate_up_proj_blocks": ("U8", (32, 5760, 90, 16)),
            f"{at}.mlp.experts.gate_up_proj_scales": ("U8", (32, 5760, 90)),
            f"{at}.mlp.experts.gate_up_proj_bias": ("BF16", (32, 5760)),
            f"{at}.mlp.experts.down_proj_blocks": ("U8", (32, hidden, 90, 16)),
            f"{at}.mlp.experts.down_proj_scales": ("U8", (32, hidden, 90)),
            f"{at}.mlp.experts.down_proj_bias": ("BF16", (32, hidden)),
        }
    return files(GPT_OSS_20B, shapes)


@functools.cache
def deepseek_v3() -> ModelFiles:
    hidden = 7168
    shapes = _ends(hidden, 129280)
    for layer in range(62):  # the last one only drafts
        at = f"model.layers.{layer}"
        matrices = {
            f"{at}.self_attn.q_a_proj": (1536, hidden),
            f"{at}.self_attn.q_b_proj": (128 * 192, 1536),
            f"{at}.self_attn.kv_a_proj_with_mqa": (576, hidden),
            f"{at}.self_attn.kv_b_proj": (128 * 256, 512),
            f"{at}.self_attn.o_proj": (hidden, 128 * 128),
        }
        if layer < 3:
            matrices |= _matrices(f"{at}.mlp", hidden, 18432)
        else:
            shapes[f"{at}.mlp.gate.weight"] = ("BF16", (256, hidden))
            matrices |= _matrices(f"{at}.mlp.shared_experts", hidden, 2048)
            for expert in range(256):
                matrices |= _matrices(f"{at}.mlp.experts.{expert}", hidden, 2048)
        for name, (outputs, inputs) in matrices.items():
            shapes[f"{name}.weight"] = ("F8_E4M3", (outputs, inputs))
            blocks = (-(-outputs // 128), -(-inputs // 128))
            shapes[f"{name}.weight_scale_inv"] = ("F32", blocks)
    return files(DEEPSEEK_V3, shapes)


@functools.cache
def medusa(heads: int, hidden: int, vocabulary: int, *, version: int = 1) -> ModelFiles:
    shapes: Shapes = {}
    for head in range(heads):
        shapes[f"{head}.0.linear.weight"] = ("F16", (hidden, hidden))
        shapes[f"{head}.0.linear.bias"] = ("F16", (hidden,))
        if version == 1:
            shapes[f"{head}.1.weight"] = ("F16", (vocabulary, hidden))
    return files({"medusa_num_heads": heads, "medusa_num_layers": 1}, shapes)


def sized(tensors: tuple[TensorInfo, ...]) -> int:
    return sum(one.size for one in tensors)


def _ends(hidden: int, vocabulary: int) -> Shapes:
    return {
        "model.embed_tokens.weight": ("BF16", (vocabulary, hidden)),
        "model.norm.weight": ("BF16", (hidden,)),
        "lm_head.weight": ("BF16", (vocabulary, hidden)),
    }


def _attention(at: str, hidden: int, *, q: int, kv: int) -> Shapes:
    return {
        f"{at}.input_layernorm.weight": ("BF16", (hidden,)),
        f"{at}.self_attn.q_proj.weight": ("BF16", (q, hidden)),
        f"{at}.self_attn.k_proj.weight": ("BF16", (kv, hidden)),
        f"{at}.self_attn.v_proj.weight": ("BF16", (kv, hidden)),
        f"{at}.self_attn.o_proj.weight": ("BF16", (hidden, q)),
        f"{at}.post_attention_layernorm.weight": ("BF16", (hidden,)),
    }


def _mlp(at: str, hidden: int, inner: int) -> Shapes:
    matrices = _matrices(at, hidden, inner).items()
    return {f"{name}.weight": ("BF16", shape) for name, shape in matrices}


def _matrices(at: str, hidden: int, inner: int) -> dict[str, tuple[int, int]]:
    return {
        f"{at}.gate_proj": (inner, hidden),
        f"{at}.up_proj": (inner, hidden),
        f"{at}.down_proj": (hidden, inner),
    }
