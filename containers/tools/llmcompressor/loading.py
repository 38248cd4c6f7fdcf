"""A checkpoint as a model; `names.map_names` gives its experts matrices of their own.

Models that see or hear are loaded whole, with towers and projectors, as
`image-text-to-text` or, where they only hear, as `multimodal-lm`: only then is the result a
checkpoint of the same kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from compressed_tensors.offload import load_offloaded_model
from packager_worker import Rejected
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMultimodalLM,
)

LOADERS = {
    "causal-lm": AutoModelForCausalLM,
    "image-text-to-text": AutoModelForImageTextToText,
    "multimodal-lm": AutoModelForMultimodalLM,
}


# Matrices of classes of their own that compute what torch's does.  llm-compressor gives them
# scales and compressed-tensors does not pack them: a checkpoint that computes noise.
SAME_AS_LINEAR = frozenset({"FalconLinear"})


def load_model(source: Path, loader: str, offload: Path, host_bytes: int) -> Any:
    """Load the weights, in memory as far as they may, the rest on disk; experts stay fused."""
    model = _load(source, loader, offload, host_bytes)
    for module in model.modules():
        if type(module).__name__ in SAME_AS_LINEAR:
            module.__class__ = torch.nn.Linear
    return model


def _load(source: Path, loader: str, offload: Path, host_bytes: int) -> Any:
    kind = LOADERS.get(loader)
    if kind is None:
        raise Rejected(f"this worker does not load models as {loader!r}")
    if not host_bytes:
        return kind.from_pretrained(source, dtype="auto", trust_remote_code=False)
    with load_offloaded_model(kind):
        return kind.from_pretrained(
            source, dtype="auto", trust_remote_code=False, device_map="auto_offload",
            max_memory={"cpu": host_bytes}, offload_folder=str(offload),
        )  # fmt: skip
