"""Checkpoints that arrive quantized, one of each writer, as headers: a tiny Llama, packed."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from packager.core.model import ModelFiles, TensorInfo
from tests.support.doubles.models import safetensors_bytes, write_tokenizer
from tests.support.headers import TINY, model_of, tensor
from tests.support.layouts import Headers, config_of, headers_of, write_out
from tests.support.places import DATA

EMPTY: Mapping[str, bytes] = MappingProxyType({})

INPUTS_8 = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}


def arguments(bits: int, kind: str, strategy: str, **more: Any) -> dict[str, Any]:
    """Spell how compressed-tensors quantized weights."""
    stated = {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True}
    return stated | {"dynamic": False, "group_size": None} | more


def compressed(layout: str, weights: Any, inputs: Any = None, **more: Any) -> dict[str, Any]:
    """Spell quantization_config as llm-compressor does."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    stated = {"quant_method": "compressed-tensors", "format": layout, "ignore": ["lm_head"]}
    return stated | {"config_groups": {"group_0": group}, "version": "0.12.2"} | more


@dataclass(frozen=True, slots=True)
class Arriving:
    """A writer's format: what it states, and how it stores a linear layer."""

    id: str
    stated: Mapping[str, Any]
    linear: Mapping[str, list[Any]]  # by its suffix, a tensor's type and shape: `inputs/8`

    def pack(self, module: str, outputs: int, inputs: int) -> Headers:
        """Give the tensors that a linear layer becomes."""
        rows = {module + suffix: row for suffix, row in self.linear.items()}
        return write_out(rows, outputs=outputs, inputs=inputs)


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}
INT_4 = arguments(4, "int", "group", group_size=128)
FORMATS = tuple(
    Arriving(name, row["stated"], row["linear"])
    for name, row in json.loads((DATA / "models" / "quantized.json").read_text("utf-8")).items()
)
BY_ID = {one.id: one for one in FORMATS}


def arriving(
    form: str | Arriving, config: dict[str, Any] = TINY, *, plain: tuple[str, ...] = (), **more: Any
) -> ModelFiles:
    """Make a model of which all linear layers but those named in `plain` are packed."""
    one = BY_ID[form] if isinstance(form, str) else form
    whole = model_of(config, dtype="BF16")
    tensors: list[TensorInfo] = []
    for info in whole.tensors:
        stem = info.name.removesuffix(".weight")
        if not info.name.endswith("_proj.weight") or stem.endswith(plain or "\0"):
            tensors.append(info)
            continue
        outputs, inputs = info.shape
        headers = one.pack(stem, outputs, inputs)
        tensors += [tensor(name, dtype, shape) for name, (dtype, shape) in headers.items()]
    stated = {**one.stated, **more}
    config = {**config, "quantization_config": stated}
    return replace(whole, config=config, tensors=tuple(tensors))


def gpt_oss() -> ModelFiles:
    """Make GPT-OSS with experts in MXFP4: blocks of 32 inputs, and a scale for each."""
    whole = model_of(TINY)
    kept = [info for info in whole.tensors if ".mlp." not in info.name]
    experts = headers_of("gpt-oss-tiny").items()
    packed = [tensor(name, dtype, shape) for name, (dtype, shape) in experts]
    return replace(whole, config=TINY | config_of("gpt-oss-tiny"), tensors=(*kept, *packed))


ONE = {
    "F32": struct.pack("<f", 1.0),
    "F16": struct.pack("<e", 1.0),
    "BF16": b"\x80\x3f",
    "F8_E4M3": b"\x38",
    "U8": b"\x7f",
    "I8": b"\x01",
    "I32": b"\x01\0\0\0",
    "I64": b"\x01" + bytes(7),
}


def save(model: ModelFiles, directory: Path, values: Mapping[str, bytes] = EMPTY) -> Path:
    """Write a model's files, of ones; `values` gives other bytes to tensors by name."""
    directory.mkdir(parents=True, exist_ok=True)
    header: dict[str, object] = {}
    data = bytearray()
    for info in model.tensors:
        own = values.get(info.name, ONE[info.dtype] * math.prod(info.shape))
        assert len(own) == info.size, info
        header[info.name] = {
            "dtype": info.dtype,
            "shape": list(info.shape),
            "data_offsets": [len(data), len(data) + len(own)],
        }
        data += own
    (directory / "model.safetensors").write_bytes(safetensors_bytes(header, bytes(data)))
    (directory / "config.json").write_text(json.dumps(model.config))
    write_tokenizer(directory)
    return directory
