"""Checkpoints as models to compute with, whole or not at all.

transformers fills in random numbers where tensors are missing, with a warning
only: figures of such a model would be worthless.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import dispatch_model, infer_auto_device_map
from awq import dequantized
from experts import EXPERT, empty_model, experts_apart
from models import leave_towers, loader_of, plain_matrices
from packager_worker import BadInput
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoTokenizer,
    CompressedTensorsConfig,
    GenerationConfig,
    Mxfp4Config,
)

# What belongs to the arithmetic of a quantized module and may have a default.
_HAVE_DEFAULTS = (
    "weight_zero_point", "weight_shape", "weight_g_idx", "input_zero_point", "output_zero_point",
)  # fmt: skip


def load_tokenizer(place: Path, role: str) -> Any:
    """Load a tokenizer, or say whose is broken."""
    with _explained(role, "tokenizer"):
        return AutoTokenizer.from_pretrained(place)


def load_model(place: Path, role: str, dtype: str, gpus: int) -> Any:
    """Load a model in eval mode, or say whose checkpoint is broken.

    On several GPUs each holds some of its layers, and what they have no room for stays in the
    machine's memory.
    """
    with _explained(role, "checkpoint"):
        config = AutoConfig.from_pretrained(place)
        quantization = getattr(config, "quantization_config", None) or {}
        kind = getattr(torch, dtype)
        if _method(quantization) == "awq":
            model, missing = _load_awq(place, config, kind)
        else:
            told: dict[str, Any]
            names = _names(place) if quantization else []
            if hasattr(config, "vision_config"):
                leave_towers(config, names)
            with plain_matrices(), experts_apart(config, names):
                model, told = loader_of(config).from_pretrained(
                    place, config=config, dtype=kind, trust_remote_code=False,
                    output_loading_info=True, **_settings(quantization), **spread(gpus),
                )  # fmt: skip
            missing = [*told["missing_keys"], *map(str, told["mismatched_keys"])]
        missing = [name for name in missing if not name.endswith(_HAVE_DEFAULTS)]
        if missing:
            raise BadInput(
                f"the {role} lacks {len(missing)} tensors, such as {sorted(missing)[0]!r}"
            )
    model = _in_one_type(model, kind).eval()
    if gpus > 1 and not hasattr(model, "hf_device_map"):
        room = spread(gpus)["max_memory"]
        model = dispatch_model(model, infer_auto_device_map(model, room))
    return model.to("cuda" if gpus else "cpu") if gpus < 2 else model


def spread(gpus: int) -> dict[str, Any]:
    """Return what has a model laid over several GPUs, half of each: there are two models."""
    if gpus < 2:
        return {}
    room = {gpu: torch.cuda.mem_get_info(gpu)[1] * 9 // 20 for gpu in range(gpus)}
    return {"device_map": "auto", "max_memory": {**room, "cpu": sys.maxsize}}


def _method(quantization: Any) -> str:
    if isinstance(quantization, dict):
        return str(quantization.get("quant_method", ""))
    return str(getattr(quantization, "quant_method", ""))


def _settings(quantization: Any) -> dict[str, Any]:
    """Have weights unpacked once, not in every pass; activations are rounded all the same."""
    match _method(quantization):
        case "compressed-tensors":
            return {"quantization_config": CompressedTensorsConfig(dequantize=True)}
        case "mxfp4":
            return {"quantization_config": Mxfp4Config(dequantize=True)}
    return {}


def _in_one_type(model: Any, dtype: torch.dtype) -> Any:
    """Some formats unpack to bfloat16, whatever is computed in; renamed tensors stay as stored."""
    for path, module in model.named_modules():
        renamed = EXPERT.search(path)
        for name, held in module.named_parameters(recurse=False):
            unpacked = isinstance(module, torch.nn.Linear) and name == "weight"
            own = renamed or "scale" not in name
            short = own and held.dtype in (torch.bfloat16, torch.float16)
            if (unpacked or short) and held.dtype != dtype:
                held.data = held.data.to(dtype)
    return model


def _load_awq(place: Path, config: Any, dtype: torch.dtype) -> tuple[Any, list[str]]:
    """Load AutoAWQ's format by undoing it: transformers needs kernels for it that no CPU has."""
    quantization = config.quantization_config
    del config.quantization_config
    weights: dict[str, torch.Tensor] = {}
    for file in sorted(place.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            names = opened.keys()
            weights.update(dequantized(names, opened.get_tensor, quantization, dtype))
    told: dict[str, Any]
    kind = type(empty_model(config))
    with experts_apart(config, weights):
        model, told = kind.from_pretrained(
            None, config=config, state_dict=weights, dtype=dtype, output_loading_info=True
        )
    if (place / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_pretrained(place)
    return model, [*told["missing_keys"], *map(str, told["mismatched_keys"])]


def _names(place: Path) -> list[str]:
    names: list[str] = []
    for file in sorted(place.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            names += opened.keys()
    return names


@contextmanager
def _explained(role: str, what: str) -> Iterator[None]:
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
        raise BadInput(f"the {what} of the {role} cannot be loaded: {first[:300]}") from error
