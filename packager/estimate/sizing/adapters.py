"""Memory that an engine keeps for LoRA adapters before it loads any."""

from __future__ import annotations

from packager.core.model import ModelProfile
from packager.core.split import Split

ENTRY_BYTES = 2


def adapter_bytes(profile: ModelProfile, split: Split, slots: int, rank: int) -> int:
    """Return the bytes of empty slots on one device: a pair of thin matrices a linear layer each.

    Of the two, one is whole on every device: vLLM 0.33.0, lora/layers.
    """
    hidden, tp_degree = profile.hidden_size, split.tp_degree
    heads = 2 * (profile.heads + profile.kv_heads) * profile.head_dim
    inner = 3 * (hidden + profile.intermediate_size // tp_degree)
    if profile.experts:
        inner = 3 * (hidden + profile.expert_size // tp_degree) * profile.experts
    layers = -(-profile.layers // split.pp_degree)
    return slots * rank * layers * (4 * hidden + heads // tp_degree + inner) * ENTRY_BYTES
