"""Tiny random checkpoints whose ranks are no mere slices: run in the tool environment.

    python sharded_models.py OUTPUT NAME ...

Latent attention absorbs projections after loading, and linear attention and Mamba fuse and reorder
columns.  The tokenizer is tiny-llama's.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as tf

TOKENIZER = Path(__file__).resolve().parents[2] / "examples/tiny-llama"
SIZES: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}


def deepseek_v3() -> Any:
    """Return latent attention and grouped experts."""
    latent = {
        "num_key_value_heads": 4,
        "q_lora_rank": 64,
        "kv_lora_rank": 512,  # with the next, the one size that vLLM's CPU kernel has
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
    }
    experts: dict[str, Any] = {
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "n_shared_experts": 1,
    }
    # transformers takes these two for granted, and vLLM reads them.
    experts |= {"topk_method": "noaux_tc", "scoring_func": "sigmoid"}
    sizes = {**SIZES, **latent, **EXPERTS, **experts, "first_k_dense_replace": 1}
    return tf.DeepseekV3ForCausalLM(tf.DeepseekV3Config(**sizes))


def qwen3_next() -> Any:
    """Return linear attention in turns with full attention, and experts."""
    linear = {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 128,  # as its kernel wants it
        "linear_value_head_dim": 128,
        "layer_types": ["linear_attention", "full_attention"],
    }
    experts = {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 64}
    sizes = {**SIZES, **linear, **experts, "head_dim": 32}
    return tf.Qwen3NextForCausalLM(tf.Qwen3NextConfig(**sizes))


def granite_hybrid() -> Any:
    """Return Mamba-2 in turns with attention, as Granite 4 has them, and a dense MLP."""
    mamba = {
        "layer_types": ["linear_attention", "full_attention"],
        "mamba_n_heads": 4,
        "mamba_d_head": 64,
        "mamba_d_state": 64,
        "mamba_chunk_size": 64,
    }
    dense = {"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 256}
    sizes = {**SIZES, **mamba, **dense, "position_embedding_type": "rope"}
    return tf.GraniteMoeHybridForCausalLM(tf.GraniteMoeHybridConfig(**sizes))


MODELS: dict[str, Callable[[], Any]] = {
    "deepseek-v3": deepseek_v3,
    "qwen3-next": qwen3_next,
    "granite-hybrid": granite_hybrid,
}


def main() -> None:
    """Write those that are named."""
    for name in sys.argv[2:]:
        torch.manual_seed(1)
        place = Path(sys.argv[1]) / name
        MODELS[name]().to(torch.bfloat16).save_pretrained(place)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(TOKENIZER / file, place)


if __name__ == "__main__":
    main()
