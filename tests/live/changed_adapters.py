"""Files of adapters, changed as trainers, slips and strangers change them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "base_model.model."


@dataclass
class Stored:
    """A tensor of a file, and its bytes."""

    dtype: str
    shape: list[int]
    data: bytes


Tensors = dict[str, Stored]


def change_adapter(place: Path, kind: str) -> None:
    """Change an adapter's files in one of the ways of CHANGES."""
    CHANGES[kind](place)


def _config(**fields: Any) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        file = place / "adapter_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    return change


def _tensors(change: Callable[[Tensors], Tensors]) -> Callable[[Path], None]:
    def changed(place: Path) -> None:
        file = place / "adapter_model.safetensors"
        file.write_bytes(_written(change(_read(file.read_bytes()))))

    return changed


def _read(data: bytes) -> Tensors:
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    rest = data[8 + length :]
    return {
        name: Stored(one["dtype"], one["shape"], rest[slice(*one["data_offsets"])])
        for name, one in header.items()
        if name != "__metadata__"
    }


def _written(tensors: Mapping[str, Stored]) -> bytes:
    header, data = {}, b""
    for name, one in tensors.items():
        offsets = [len(data), len(data) + len(one.data)]
        header[name] = {"dtype": one.dtype, "shape": one.shape, "data_offsets": offsets}
        data += one.data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def _renamed(old: str, new: str) -> Callable[[Path], None]:
    return _tensors(lambda own: {name.replace(old, new): one for name, one in own.items()})


def _halved(own: Tensors) -> Tensors:
    """Return matrices of a model of half the size."""
    for name, one in own.items():
        rows, columns = one.shape
        if ".lora_A." in name:
            width = len(one.data) // rows
            one.shape = [rows, columns // 2]
            one.data = b"".join(one.data[at * width :][: width // 2] for at in range(rows))
        else:
            one.shape, one.data = [rows // 2, columns], one.data[: len(one.data) // 2]
    return own


def _turned(own: Tensors) -> Tensors:
    """Return the matrices of one module as those of its transposed weight."""
    for path in {name.partition(".lora_")[0] for name in own if ".down_proj." in name}:
        first, second = (own[f"{path}.lora_{half}.weight"] for half in "AB")
        first.shape, second.shape = second.shape[::-1], first.shape[::-1]
        first.data, second.data = second.data, first.data
    return own


def _without_half(own: Tensors) -> Tensors:
    return {name: one for name, one in own.items() if "layers.0.mlp.up_proj.lora_B" not in name}


def _as_integers(own: Tensors) -> Tensors:
    for one in own.values():
        one.dtype = {"BF16": "I16", "F32": "I32"}[one.dtype]
    return own


def _with_head(own: Tensors) -> Tensors:
    return {**own, f"{PREFIX}lm_head.weight": Stored("BF16", [2048, 128], bytes(2 * 2048 * 128))}


def _cut(place: Path) -> None:
    file = place / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def _pickled(place: Path) -> None:
    (place / "adapter_model.safetensors").rename(place / "adapter_model.bin")


CHANGES: dict[str, Callable[[Path], None]] = {
    "default": _renamed(".weight", ".default.weight"),
    "bare": _renamed(PREFIX, ""),
    "wrapped": _renamed(f"{PREFIX}model.", f"{PREFIX}model.language_model."),
    "half": _tensors(_without_half),
    "rank": _config(r=4),
    "no rank": _config(r=0),
    "layer": _renamed("layers.1.", "layers.7."),
    "module": _renamed("mlp.up_proj", "mlp.wide_proj"),
    "sibling": _tensors(_halved),
    "turned": _tensors(_turned),
    "cut": _cut,
    "pickle": _pickled,
    "kind": _config(peft_type="IA3"),
    "integers": _tensors(_as_integers),
    "no config": lambda place: (place / "adapter_config.json").unlink(),
    "arrow": _config(arrow_config={"top_k": 2}),
    "tomorrow": _config(use_xlora=True),
    "base": _config(base_model_name_or_path="someone/other-7b"),
    "head": _tensors(_with_head),
}
