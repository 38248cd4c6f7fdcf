"""Checkpoints that bring an MTP head, as headers of their published sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from packager.core.model import ModelFiles, ModelRef
from tests.support import zoo
from tests.support.headers import tensor

Shapes = dict[str, tuple[int, ...]]

GLM_4_5_AIR: dict[str, Any] = {
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "hidden_size": 4096,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "num_hidden_layers": 46,
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "first_k_dense_replace": 1,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "vocab_size": 151552,
    "max_position_embeddings": 131072,
}
QWEN3_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
}
QWEN3_5: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "mtp_num_hidden_layers": 1,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
    },
}
QWEN3_5_MOE: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "hidden_size": 2048,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_hidden_layers": 40,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "mtp_num_hidden_layers": 1,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
    },
}
MIMO_7B: dict[str, Any] = {
    "architectures": ["MiMoForCausalLM"],
    "model_type": "mimo",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151680,
    "max_position_embeddings": 32768,
}
GEMMA_4: dict[str, Any] = {
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4",
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_hidden_layers": 42,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 262144,
    "max_position_embeddings": 131072,
}


@cache
def deepseek_v3() -> ModelFiles:
    """DeepSeek-V3: layer 61 is the head, with copies of the embeddings and of lm_head."""
    plain = zoo.deepseek_v3()
    at, hidden, vocabulary = "model.layers.61", 7168, 129280
    head = {
        f"{at}.enorm.weight": (hidden,),
        f"{at}.hnorm.weight": (hidden,),
        f"{at}.eh_proj.weight": (hidden, 2 * hidden),
        f"{at}.embed_tokens.weight": (vocabulary, hidden),
        f"{at}.shared_head.norm.weight": (hidden,),
        f"{at}.shared_head.head.weight": (vocabulary, hidden),
    }
    added = tuple(tensor(name, "BF16", shape) for name, shape in head.items())
    config = {**plain.config, "model_type": "deepseek_v3"}
    return replace(plain, config=config, tensors=(*plain.tensors, *added))


@cache
def glm_4_5_air() -> ModelFiles:
    """GLM-4.5-Air: layer 46 is the head, 128 experts and all."""
    hidden = 4096
    shapes = _ends("model.", hidden, 151552)
    for layer in range(47):
        at = f"model.layers.{layer}"
        shapes |= _attention(at, hidden, q=96 * 128, kv=8 * 128)
        if layer < 1:
            shapes |= _mlp(f"{at}.mlp", hidden, 10944)
            continue
        shapes[f"{at}.mlp.gate.weight"] = (128, hidden)
        shapes |= _mlp(f"{at}.mlp.shared_experts", hidden, 1408)
        for expert in range(128):
            shapes |= _mlp(f"{at}.mlp.experts.{expert}", hidden, 1408)
    at = "model.layers.46"
    shapes |= {f"{at}.{name}.weight": (hidden,) for name in ("enorm", "hnorm", "shared_head.norm")}
    shapes[f"{at}.eh_proj.weight"] = (hidden, 2 * hidden)
    shapes[f"{at}.embed_tokens.weight"] = (151552, hidden)
    shapes[f"{at}.shared_head.head.weight"] = (151552, hidden)
    return _model(GLM_4_5_AIR, shapes)


@cache
def qwen3_next() -> ModelFiles:
    """Qwen3-Next-80B: `mtp.*`, whose one layer attends; config.json declares nothing."""
    hidden = 2048
    shapes = _ends("model.", hidden, 151936)
    for layer in range(48):
        at = f"model.layers.{layer}"
        if layer % 4 == 3:
            shapes |= _attention(at, hidden, q=2 * 16 * 256, kv=2 * 256, gated=True)
        else:
            shapes[f"{at}.linear_attn.in_proj_qkvz.weight"] = (12288, hidden)
            shapes[f"{at}.linear_attn.out_proj.weight"] = (hidden, 4096)
        shapes |= _qwen_experts(f"{at}.mlp", hidden)
    shapes |= _qwen_head(hidden)
    shapes |= _attention("mtp.layers.0", hidden, q=2 * 16 * 256, kv=2 * 256, gated=True)
    shapes |= _qwen_experts("mtp.layers.0.mlp", hidden)
    return _model(QWEN3_NEXT, shapes)


@cache
def qwen3_5() -> ModelFiles:
    """Qwen3.5-27B: the head is beside the language model, and declared in its configuration."""
    hidden = 5120
    shapes = _ends("model.language_model.", hidden, 248320)
    for layer in range(64):
        at = f"model.language_model.layers.{layer}"
        if layer % 4 == 3:
            shapes |= _attention(at, hidden, q=2 * 24 * 256, kv=4 * 256, gated=True)
        else:
            shapes[f"{at}.linear_attn.in_proj_qkv.weight"] = (10240, hidden)
            shapes[f"{at}.linear_attn.out_proj.weight"] = (hidden, 6144)
        shapes |= _mlp(f"{at}.mlp", hidden, 17408)
    shapes |= _qwen_head(hidden)
    shapes |= _attention("mtp.layers.0", hidden, q=2 * 24 * 256, kv=4 * 256, gated=True)
    shapes |= _mlp("mtp.layers.0.mlp", hidden, 17408)
    return _model(QWEN3_5, shapes)


@cache
def mimo_7b() -> ModelFiles:
    """MiMo-7B: `model.mtp_layers.0`."""
    hidden = 4096
    shapes = _ends("model.", hidden, 151680)
    for at in (*(f"model.layers.{layer}" for layer in range(36)), "model.mtp_layers.0"):
        shapes |= _attention(at, hidden, q=32 * 128, kv=8 * 128) | _mlp(f"{at}.mlp", hidden, 11008)
    at = "model.mtp_layers.0"
    norms = ("token_layernorm", "hidden_layernorm", "final_layernorm")
    shapes |= {f"{at}.{name}.weight": (hidden,) for name in norms}
    shapes[f"{at}.input_proj.weight"] = (hidden, 2 * hidden)
    return _model(MIMO_7B, shapes)


@cache
def gemma_4() -> ModelFiles:
    """Gemma 4, whose head is a checkpoint of its own."""
    shapes = _ends("model.", 2560, 262144)
    for layer in range(42):
        at = f"model.layers.{layer}"
        shapes |= _attention(at, 2560, q=8 * 256, kv=2 * 256) | _mlp(f"{at}.mlp", 2560, 10240)
    return _model(GEMMA_4, shapes)


MODELS: Mapping[str, Callable[[], ModelFiles]] = {
    "deepseek-v3": deepseek_v3,
    "glm-4.5-air": glm_4_5_air,
    "qwen3-next": qwen3_next,
    "qwen3.5": qwen3_5,
    "mimo": mimo_7b,
}


def without(model: ModelFiles, text: str) -> ModelFiles:
    """The same without the tensors whose names have `text` in them, as a quantizer leaves it."""
    return replace(model, tensors=tuple(one for one in model.tensors if text not in one.name))


def with_config(model: ModelFiles, **changed: Any) -> ModelFiles:
    """The same with other values in config.json; None takes a key out."""
    config = {**model.config, **changed}
    return replace(model, config={key: value for key, value in config.items() if value is not None})


def _model(config: Mapping[str, Any], shapes: Shapes) -> ModelFiles:
    return ModelFiles(
        ref=ModelRef(source="hub", name="org/model", revision="c" * 40),
        files=(),
        config={"torch_dtype": "bfloat16", **config},
        tensors=tuple(tensor(name, "BF16", shape) for name, shape in shapes.items()),
    )


def _ends(at: str, hidden: int, vocabulary: int) -> Shapes:
    return {
        f"{at}embed_tokens.weight": (vocabulary, hidden),
        f"{at}norm.weight": (hidden,),
        "lm_head.weight": (vocabulary, hidden),
    }


def _attention(at: str, hidden: int, *, q: int, kv: int, gated: bool = False) -> Shapes:
    return {
        f"{at}.self_attn.q_proj.weight": (q, hidden),
        f"{at}.self_attn.k_proj.weight": (kv, hidden),
        f"{at}.self_attn.v_proj.weight": (kv, hidden),
        f"{at}.self_attn.o_proj.weight": (hidden, q // 2 if gated else q),
        f"{at}.input_layernorm.weight": (hidden,),
        f"{at}.post_attention_layernorm.weight": (hidden,),
    }


def _mlp(at: str, hidden: int, inner: int) -> Shapes:
    return {
        f"{at}.gate_proj.weight": (inner, hidden),
        f"{at}.up_proj.weight": (inner, hidden),
        f"{at}.down_proj.weight": (hidden, inner),
    }


def _qwen_experts(at: str, hidden: int) -> Shapes:
    shapes: Shapes = {f"{at}.gate.weight": (512, hidden)}
    shapes |= _mlp(f"{at}.shared_expert", hidden, 512)
    for expert in range(512):
        shapes |= _mlp(f"{at}.experts.{expert}", hidden, 512)
    return shapes


def _qwen_head(hidden: int) -> Shapes:
    norms = ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    return {f"mtp.{name}.weight": (hidden,) for name in norms} | {
        "mtp.fc.weight": (hidden, 2 * hidden)
    }
