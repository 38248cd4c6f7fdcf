"""What reads images beside a language model: the memory of its own peak, from config.json.

Engines run it once on as many images as a step may have before they look at what memory is left
(vLLM v1/worker/gpu_model_runner.py profile_run).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ELEMENT_BYTES = 2
MOST = 1 << 20  # an untrusted number must not cost memory
MOST_LAYERS = 1 << 10


@dataclass(frozen=True, slots=True)
class Tower:
    """One patch of an image."""

    patch_bytes: int = 0  # alive at the peak: twice what a layer and its MLP make of it
    patches: int = 0  # that become one token of the language model
    attention_size: int = 0  # hidden size times layers: what each patch compares with another


def read_tower(config: Mapping[str, Any]) -> Tower:
    """Read a vision tower; an empty one where config.json does not state its sizes."""
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        return Tower()
    hidden, inner = _number(vision, "hidden_size"), _number(vision, "intermediate_size")
    merged = _number(vision, "spatial_merge_size") or _number(config, "spatial_merge_size")
    side, patch = _number(vision, "image_size"), _number(vision, "patch_size")
    tokens = _number(config, "mm_tokens_per_image")  # Gemma 3
    patches = merged * merged
    if not patches and tokens and patch:
        patches = (side // patch) ** 2 // tokens
    if not (hidden and inner and 0 < patches <= MOST):
        return Tower()
    layers = next(filter(None, (_number(vision, key) for key in ("num_hidden_layers", "depth"))), 0)
    return Tower(
        2 * (hidden + inner) * ELEMENT_BYTES,
        patches,
        attention_size=min(layers, MOST_LAYERS) * hidden,
    )


def _number(stated: Mapping[str, Any], key: str) -> int:
    value = stated.get(key)
    return value if type(value) is int and 0 < value <= MOST else 0
