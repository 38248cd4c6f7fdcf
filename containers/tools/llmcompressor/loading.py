"""A checkpoint as a model whose matrices can be quantized one by one.

Models that see or hear are loaded whole, with towers and projectors, as
`image-text-to-text`: only then is the result a checkpoint of the same kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compressed_tensors.offload import load_offloaded_model
from llmcompressor.modeling.moe.linearize import linearize_moe
from packager_worker import Rejected
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

LOADERS = {
    "causal-lm": AutoModelForCausalLM,
    "image-text-to-text": AutoModelForImageTextToText,
}


def load_model(source: Path, loader: str, offload: Path, host_bytes: int) -> Any:
    """Load the weights, in memory as far as they may, the rest on disk; split fused experts."""
    kind = LOADERS.get(loader)
    if kind is None:
        raise Rejected(f"this worker does not load models as {loader!r}")
    if not host_bytes:
        return linearize_moe(kind.from_pretrained(source, dtype="auto", trust_remote_code=False))
    with load_offloaded_model(kind):
        model = kind.from_pretrained(
            source, dtype="auto", trust_remote_code=False, device_map="auto_offload",
            max_memory={"cpu": host_bytes}, offload_folder=str(offload),
        )  # fmt: skip
    return linearize_moe(model)
