"""Checkpoints read with NumPy alone: what is stored, and what it stands for.

Nothing of the libraries that wrote them is used, so that both sides of a
comparison cannot share a mistake.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.doubles.models import safetensors_bytes
from tests.support.written_layouts import WrittenLayout

Array = NDArray[Any]

PLAIN = {
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I8": "<i1",
    "U8": "<u1",
    "BOOL": "<u1",
}
GROUP_OF_NVFP4, GROUP_OF_MX = 16, 32
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float64)


def fp8_table() -> Array:
    """Give the 256 values of E4M3: 4 bits of exponent, 3 of fraction, no infinities."""
    values = np.empty(256)
    for code in range(256):
        sign = -1.0 if code & 128 else 1.0
        exponent, fraction = (code >> 3) & 15, code & 7
        if exponent == 15 and fraction == 7:
            values[code] = np.nan
        elif exponent:
            values[code] = sign * (1 + fraction / 8) * 2.0 ** (exponent - 7)
        else:
            values[code] = sign * fraction / 8 * 2.0**-6
    return values


FP8 = fp8_table()


@dataclass(frozen=True)
class Tensor:
    """One tensor as it is stored."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def values(self) -> Array:
        if self.dtype == "BF16":
            words = np.frombuffer(self.data, "<u2").astype("<u4") << 16
            return words.view("<f4").astype(np.float64).reshape(self.shape)
        if self.dtype == "F8_E4M3":
            return FP8[np.frombuffer(self.data, np.uint8)].reshape(self.shape)
        plain = np.frombuffer(self.data, PLAIN[self.dtype]).reshape(self.shape)
        return plain.astype(np.float64) if self.dtype.startswith("F") else plain.astype(np.int64)


Tensors = Mapping[str, Tensor]


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """Read every tensor of every safetensors file."""
    found = {}
    for file in sorted(directory.glob("*.safetensors")):
        data = file.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        for name, told in json.loads(data[8:start]).items():
            if name != "__metadata__":
                begin, end = told["data_offsets"]
                part = data[start + begin : start + end]
                found[name] = Tensor(told["dtype"], tuple(told["shape"]), part)
    return found


def rename_tensors(file: Path, names: Mapping[str, str]) -> None:
    """Give tensors of a file other names, and leave out those whose new name is empty."""
    data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = {}
    values = b""
    for name, said in json.loads(data[8:start]).items():
        if name != "__metadata__" and names.get(name, name):
            begin, end = said["data_offsets"]
            offsets = [len(values), len(values) + end - begin]
            header[names.get(name, name)] = {**said, "data_offsets": offsets}
            values += data[start + begin : start + end]
    file.write_bytes(safetensors_bytes(header, values))


def without_tensor(model: Path, name: str) -> None:
    """Leave a tensor out of a checkpoint, as if it had never been there."""
    index = json.loads((model / "model.safetensors.index.json").read_text())
    rename_tensors(model / index["weight_map"].pop(name), {name: ""})
    (model / "model.safetensors.index.json").write_text(json.dumps(index))


def unpack_model(layout: Path, into: Path) -> None:
    """Take the model's files out of the layers of an OCI layout."""
    for layer in WrittenLayout(layout).layers:
        with tarfile.open(layer) as archive:
            for entry in archive:
                _, is_model, name = f"/{entry.name}".partition("/model/")
                if entry.isfile() and is_model:
                    file = archive.extractfile(entry)
                    assert file is not None
                    (into / name).parent.mkdir(parents=True, exist_ok=True)
                    (into / name).write_bytes(file.read())


def modules_of(tensors: Tensors) -> list[str]:
    """Name the modules that are quantized: each has scales of its own."""
    ends = (".weight_scale", ".scales")
    return sorted(name.rpartition(".")[0] for name in tensors if name.endswith(ends))


def dequantized(tensors: Tensors, module: str) -> tuple[Array, Array]:
    """Give the weights of a module, and beside each what half a step is there.

    Half a step is how far rounding to the nearest may go: half the distance to
    the neighbouring value that the format has.
    """
    parts = {
        name.rpartition(".")[2]: tensor.values
        for name, tensor in tensors.items()
        if name.rpartition(".")[0] == module
    }
    if "qweight" in parts:
        return _gemm(parts)
    if "weight_global_scale" in parts:
        return _nvfp4(parts)
    scale = parts["weight_scale"]
    if tensors[f"{module}.weight_scale"].dtype == "U8":
        return _microscaled(parts)
    if "weight_packed" in parts:
        integers = _nibbles(parts["weight_packed"])
        steps = np.repeat(scale, integers.shape[1] // scale.shape[1], 1)
        middle: Array | int = 8  # compressed-tensors packs signed integers as 0..15
        if "weight_zero_point" in parts:
            points = _nibbles(parts["weight_zero_point"].T).T[: integers.shape[0]]
            middle = np.repeat(points, integers.shape[1] // points.shape[1], 1)
        return (integers - middle) * steps, abs(steps) / 2  # AutoRound writes negative scales
    weight = parts["weight"]
    if (scale.ndim == 2 and scale.shape[1] > 1) or (
        scale.size > 1 and scale.shape[0] < len(weight)
    ):
        scale = np.kron(scale, np.ones((128, 128)))[: weight.shape[0], : weight.shape[1]]
    steps = np.broadcast_to(scale, weight.shape)
    if tensors[f"{module}.weight"].dtype == "I8":
        return weight * steps, steps / 2
    return weight * steps, _half_of_e4m3(weight) * steps


def _gemm(parts: Mapping[str, Array]) -> tuple[Array, Array]:
    """AutoAWQ: nibble i of a word holds output 8j + (0, 2, 4, 6, 1, 3, 5, 7)[i]."""
    group = len(parts["qweight"]) // len(parts["scales"])
    integers, points = _interleaved(parts["qweight"]), _interleaved(parts["qzeros"])
    steps = np.repeat(parts["scales"], group, 0)
    return ((integers - np.repeat(points, group, 0)) * steps).T, steps.T / 2


def _nvfp4(parts: Mapping[str, Array]) -> tuple[Array, Array]:
    packed = parts["weight_packed"]
    codes = np.stack((packed & 15, packed >> 4), -1).reshape(len(packed), -1)
    values = FP4[codes]
    steps = np.repeat(parts["weight_scale"], GROUP_OF_NVFP4, 1) / parts["weight_global_scale"]
    return values * steps, _half_of_e2m1(values) * steps


def _microscaled(parts: Mapping[str, Array]) -> tuple[Array, Array]:
    """MXFP4 and MXFP8: a power of two for 32 inputs, stored as its exponent and 127."""
    steps = np.repeat(2.0 ** (parts["weight_scale"] - 127), GROUP_OF_MX, 1)
    if "weight" in parts:
        values = parts["weight"]
        return values * steps, _half_of_e4m3(values) * steps
    packed = parts["weight_packed"]
    values = FP4[np.stack((packed & 15, packed >> 4), -1).reshape(len(packed), -1)]
    return values * steps, _half_of_e2m1(values) * steps


def _half_of_e4m3(values: Array) -> Array:
    """E4M3 has 8 values to each power of two, and 2^-9 between the smallest ones."""
    return np.maximum(2.0 ** np.floor(np.log2(np.maximum(abs(values), 2.0**-6))) / 16, 2.0**-10)


def _half_of_e2m1(values: Array) -> Array:
    return np.select([abs(values) < 2, abs(values) < 4], [0.25, 0.5], 1.0)


def _nibbles(words: Array) -> Array:
    """Words to nibbles: nibble i of word j is column 8j + i."""
    return np.stack([(words >> (4 * place)) & 15 for place in range(8)], -1).reshape(len(words), -1)


def _interleaved(words: Array) -> Array:
    found = np.empty((*words.shape, 8), np.int64)
    for place, output in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
        found[..., output] = (words >> (4 * place)) & 15
    return found.reshape(len(words), -1)
