"""Models and drafts of the golden cases: headers only, of the sizes of the real ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.core.model import ModelFiles, ModelRef, TensorInfo
from tests.support.headers import (
    AWQ_G128,
    GEMMA_2_2B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    awq_model_of,
    model_of,
    tensor,
)
from tests.support.heads import eagle3
from tests.support.templates import QWEN_3_THINKING

QWEN_2_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "torch_dtype": "bfloat16",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
}
MIXTRAL_8X7B = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
}
LLAMA_68M = LLAMA_3_8B | {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 2,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
}


def mixtral(*, awq: bool) -> ModelFiles:
    """Mixtral 8x7B, in bf16 or with every linear layer packed by AWQ."""
    width, inner, kv_width, vocabulary = 4096, 14336, 1024, 32000
    dtype = "F16" if awq else "BF16"
    tensors = [
        tensor("model.embed_tokens.weight", dtype, (vocabulary, width)),
        tensor("lm_head.weight", dtype, (vocabulary, width)),
        tensor("model.norm.weight", dtype, (width,)),
    ]
    for layer in range(32):
        stem = f"model.layers.{layer}"
        linear = {
            f"{stem}.self_attn.q_proj": (width, width),
            f"{stem}.self_attn.k_proj": (kv_width, width),
            f"{stem}.self_attn.v_proj": (kv_width, width),
            f"{stem}.self_attn.o_proj": (width, width),
        }
        for expert in range(8):
            inside = f"{stem}.block_sparse_moe.experts.{expert}"
            linear[f"{inside}.w1"] = linear[f"{inside}.w3"] = (inner, width)
            linear[f"{inside}.w2"] = (width, inner)
        for name, shape in linear.items():
            tensors += _linear(name, shape, awq=awq)
        tensors += [
            tensor(f"{stem}.input_layernorm.weight", dtype, (width,)),
            tensor(f"{stem}.post_attention_layernorm.weight", dtype, (width,)),
            tensor(f"{stem}.block_sparse_moe.gate.weight", dtype, (8, width)),
        ]
    config: dict[str, Any] = MIXTRAL_8X7B
    if awq:
        config = config | {"torch_dtype": "float16", "quantization_config": AWQ_G128}
    name = "ybelkada/Mixtral-8x7B-Instruct-v0.1-AWQ" if awq else "mistralai/Mixtral-8x7B-v0.1"
    return ModelFiles(
        ref=ModelRef(source="hub", name=name), files=(), config=config, tensors=tuple(tensors)
    )


def medusa(*, hidden_size: int, vocab_size: int, heads: int) -> ModelFiles:
    """Medusa heads of version 1, of one layer each."""
    tensors: list[TensorInfo] = []
    for head in range(heads):
        tensors += [
            tensor(f"{head}.0.linear.weight", "F16", (hidden_size, hidden_size)),
            tensor(f"{head}.0.linear.bias", "F16", (hidden_size,)),
            tensor(f"{head}.1.weight", "F16", (vocab_size, hidden_size)),
        ]
    return ModelFiles(
        ref=ModelRef(source="hub", name="org/medusa"),
        files=(),
        config={"medusa_num_heads": heads, "medusa_num_layers": 1},
        tensors=tuple(tensors),
    )


def _linear(name: str, shape: tuple[int, int], *, awq: bool) -> list[TensorInfo]:
    outputs, inputs = shape
    if not awq:
        return [tensor(f"{name}.weight", "BF16", shape)]
    return [
        tensor(f"{name}.qweight", "I32", (inputs, outputs // 8)),
        tensor(f"{name}.qzeros", "I32", (inputs // 128, outputs // 8)),
        tensor(f"{name}.scales", "F16", (inputs // 128, outputs)),
    ]


LLAMA_8B = model_of(LLAMA_3_8B, name="meta-llama/Meta-Llama-3-8B-Instruct")
LLAMA_70B = model_of(LLAMA_3_70B, name="meta-llama/Meta-Llama-3-70B-Instruct")
LLAMA_70B_AWQ = awq_model_of(LLAMA_3_70B, name="casperhansen/llama-3-70b-instruct-awq")
LLAMA_8B_AWQ = awq_model_of(LLAMA_3_8B, name="solidrust/Meta-Llama-3-8B-Instruct-AWQ")
GEMMA = model_of(GEMMA_2_2B, name="google/gemma-2-2b-it")
QWEN = model_of(QWEN_2_7B, name="Qwen/Qwen2-7B-Instruct")
QWQ = replace(QWEN, chat_template=QWEN_3_THINKING)
MIXTRAL = mixtral(awq=False)
MIXTRAL_AWQ = mixtral(awq=True)
SMALL = model_of(LLAMA_68M, name="org/llama-68m")
EAGLE3 = eagle3(LLAMA_3_8B, draft_vocab=32000)
MIXTRAL_MEDUSA = medusa(hidden_size=4096, vocab_size=32000, heads=3)
LLAMA_MEDUSA = medusa(hidden_size=4096, vocab_size=128256, heads=3)
