"""Plain arithmetic of tiny-llama, with an adapter or without: what the next token's odds are.

Written of the architecture alone, in float32, so that an engine's answer can be held against it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from packager.core.adapters import Adapter

Array = np.ndarray[Any, np.dtype[np.float32]]


def read_tensors(path: Path) -> dict[str, Array]:
    """Return every tensor of a safetensors file in float32; numpy has no bfloat16."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        raw = data[8 + size + start : 8 + size + end]
        values = np.frombuffer(raw, {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}[entry["dtype"]])
        if entry["dtype"] == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        found[name] = values.astype(np.float32).reshape(entry["shape"])
    return found


def weights_of(model: Path, adapter: Adapter | None = None) -> dict[str, Array]:
    """Return the model's weights, with an adapter's deltas added."""
    weights: dict[str, Array] = {}
    for path in sorted(model.glob("*.safetensors")):
        weights |= read_tensors(path)
    if adapter is not None:
        own = read_tensors(Path(_path_of(adapter)))
        for module in adapter.modules:
            delta = own[module.b.name] @ own[module.a.name] * module.scale
            weights[f"{module.path}.weight"] = weights[f"{module.path}.weight"] + delta
    return weights


def _path_of(adapter: Adapter) -> str:
    return next(str(file.content.path) for file in adapter.files if file.path.endswith("tensors"))  # type: ignore[union-attr]


def log_odds(
    weights: Mapping[str, Array], config: Mapping[str, Any], tokens: Sequence[int]
) -> Array:
    """Return the logarithms of the odds of every token after these."""
    heads, cached, width = (
        config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    hidden = weights["model.embed_tokens.weight"][list(tokens)]
    for layer in range(config["num_hidden_layers"]):
        own = {
            name.removeprefix(f"model.layers.{layer}.").removesuffix(".weight"): value
            for name, value in weights.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        normed = _norm(hidden, own["input_layernorm"], config)
        q, k, v = (
            (normed @ own[f"self_attn.{name}_proj"].T).reshape(len(tokens), -1, width)
            for name in "qkv"
        )
        q, k = _turned(q, config), _turned(k, config)
        k, v = (np.repeat(one, heads // cached, axis=1) for one in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(width)
        scores += np.triu(np.full(scores.shape[1:], -np.inf, np.float32), 1)
        mixed = np.einsum("hqk,khd->qhd", _softmax(scores), v).reshape(len(tokens), -1)
        hidden = hidden + mixed @ own["self_attn.o_proj"].T
        normed = _norm(hidden, own["post_attention_layernorm"], config)
        gate, up = (normed @ own[f"mlp.{name}_proj"].T for name in ("gate", "up"))
        hidden = hidden + (gate / (1 + np.exp(-gate)) * up) @ own["mlp.down_proj"].T
    last = _norm(hidden[-1:], weights["model.norm.weight"], config)
    logits = (last @ weights["lm_head.weight"].T)[0]
    found: Array = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    return found


def _norm(values: Array, weight: Array, config: Mapping[str, Any]) -> Array:
    spread = np.sqrt((values**2).mean(-1, keepdims=True) + config["rms_norm_eps"])
    found: Array = values / spread * weight
    return found


def _turned(values: Array, config: Mapping[str, Any]) -> Array:
    half = values.shape[-1] // 2
    speeds = config["rope_theta"] ** (-np.arange(half, dtype=np.float32) / half)
    angles = np.arange(len(values), dtype=np.float32)[:, None] * speeds
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = values[..., :half], values[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def _softmax(scores: Array) -> Array:
    odds = np.exp(scores - scores.max(-1, keepdims=True))
    found: Array = odds / odds.sum(-1, keepdims=True)
    return found
