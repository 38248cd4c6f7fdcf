"""Let vLLM group caches: one JSON object a line in, the bytes of one request a line out.

Run in vLLM's packages.  Each case has the layers of a device, and the tokens of a request.
"""

from __future__ import annotations

import inspect
import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1 import kv_cache_interface as specs
from vllm.v1.core import kv_cache_utils as core
from vllm.v1.kv_cache_layout import KVCacheLayout

MEMORY = 1 << 40


def make(name: str, **fields: Any) -> Any:
    """Make a spec of what this version of it has."""
    known = inspect.signature(getattr(specs, name)).parameters
    return getattr(specs, name)(**{key: fields[key] for key in fields if key in known})


def layer_spec(group: dict[str, Any], case: dict[str, Any]) -> Any:
    """Describe one layer as the model's code does."""
    block = group["block_tokens"] or case["block_tokens"]
    kind, size = group["kind"], group["head_dim"]
    if kind == "state":
        shapes, dtypes = ((group["state_bytes"],),), (torch.uint8,)
        return make(
            "MambaSpec",
            block_size=case["block_tokens"],
            shapes=shapes,
            dtypes=dtypes,
            page_size_padded=case["page_bytes"],
            mamba_cache_mode="align",
        )
    if kind in ("mla", "compressed", "sums"):
        windowed = bool(group["window_tokens"])
        return make(
            "SlidingWindowMLASpec" if windowed else "MLAAttentionSpec",
            block_size=block if kind == "mla" else group["block_tokens"] or 256,
            num_kv_heads=1,
            head_size=group["entry_bytes"] or size * 2,
            dtype=torch.uint8,
            tokens_per_state=group["entry_tokens"],
            sliding_window=group["window_tokens"] or None,
            alignment=None if kind == "mla" else 576,
        )
    name = {"full": "FullAttentionSpec", "sliding": "SlidingWindowSpec"}.get(kind)
    return make(
        name or "ChunkedLocalAttentionSpec",
        block_size=block,
        num_kv_heads=group["kv_heads"],
        head_size=size,
        head_size_v=group["value_dim"] or size,
        dtype=torch.bfloat16,
        sliding_window=group["window_tokens"] or None,
        attention_chunk_size=group["window_tokens"] or None,
    )


def request_bytes(case: dict[str, Any]) -> float:
    """Return what one request takes of the pool, as vLLM counts it."""
    packed = any(group["kind"] == "compressed" for group in case["groups"])
    layout = KVCacheLayout["BLHNC" if packed else "LBHNC"]
    config = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=case["tokens"]),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1
        ),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        cache_config=SimpleNamespace(
            mamba_cache_mode="align",
            num_gpu_blocks_override=None,
            prefix_cache_retention_interval=None,
            get_resolved_kv_cache_layout=lambda: layout,
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        kv_transfer_config=None,
        speculative_config=None,
        max_in_flight_tokens=case["in_flight"],
    )
    layers = {
        f"{at}.{layer}": layer_spec(group, case)
        for at, group in enumerate(case["groups"])
        for layer in range(group["layers"])
    }
    groups = core.get_kv_cache_groups(config, layers)
    found = core.get_kv_cache_config_from_groups(config, groups, MEMORY)
    requests = core.get_max_concurrency_for_kv_cache_config(config, found)
    return MEMORY / found.num_blocks * (found.num_blocks / requests)


for line in sys.stdin:
    print(json.dumps({"bytes": request_bytes(json.loads(line))}), file=sys.__stdout__, flush=True)
