"""The model that a head is for, whole or not at all.

transformers fills in random numbers where tensors are missing, with a warning
only: a head trained on such a model would be worthless.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from packager_worker import BadInput, Rejected
from spreading import lay_over
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Mxfp4Config

UNPACKED = "mxfp4"  # of GPT-OSS, whose experts have no other checkpoint


def load_tokenizer(place: Path) -> Any:
    """Load the model's tokenizer."""
    with _explained("tokenizer"):
        return AutoTokenizer.from_pretrained(place)


def load_config(place: Path) -> Any:
    """Load what shapes the model: that of its text part where it has others."""
    with _explained("configuration"):
        config = AutoConfig.from_pretrained(place)
    if _method(config) not in ("", UNPACKED):
        raise Rejected(
            "the model is quantized",
            "train with the checkpoint that it was made from: the head serves both",
        )
    return config.get_text_config()


def _method(config: Any) -> str:
    stated = getattr(config, "quantization_config", None) or {}
    return str(stated.get("quant_method", "unknown")) if stated else ""


def load_model(place: Path, dtype: str, gpus: int) -> Any:
    """Load the model in eval mode, frozen; over several GPUs it is laid layer by layer."""
    kind = getattr(torch, dtype)
    with _explained("checkpoint"):
        told: dict[str, Any]
        more: dict[str, Any] = {}
        if _method(load_config(place)) == UNPACKED:
            more["quantization_config"] = Mxfp4Config(dequantize=True)
        model, told = AutoModelForCausalLM.from_pretrained(
            place, dtype=kind, trust_remote_code=False, output_loading_info=True, **more
        )
        missing = [*told["missing_keys"], *map(str, told["mismatched_keys"])]
        if missing:
            raise BadInput(
                f"the model lacks {len(missing)} tensors, such as {sorted(missing)[0]!r}"
            )
    model = model.to(kind).eval().requires_grad_(False)  # unpacked weights are bfloat16
    if gpus > 1:
        return lay_over(model, [f"cuda:{number}" for number in range(gpus)])
    return model.to(device_for(gpus))


def device_for(gpus: int) -> str:
    """Where to compute."""
    return "cuda" if gpus else "cpu"


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn what libraries raise for broken files into one failure; memory is another matter."""
    try:
        yield
    except (BadInput, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        text = str(error)
        if "alloc" in text and "memory" in text:
            raise
        first = (text.splitlines() or [type(error).__name__])[0]
        raise BadInput(f"the model's {what} cannot be loaded: {first[:300]}") from error
