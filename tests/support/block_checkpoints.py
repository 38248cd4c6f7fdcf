"""Checkpoints in FP8 with a scale for 128 × 128, made of those in bfloat16, and what they mean."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from packager.optimize.quantize.stream.arithmetic import round_rows
from packager.optimize.quantize.stream.formats import Format
from tests.support.doubles.models import safetensors_bytes

BLOCK = 128
CONFIG = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [BLOCK, BLOCK],
}
MATRIX = re.compile(r"(?:proj|proj_with_mqa|w[123])\.weight$")  # of attention, MLP and experts
Order = Literal["first", "beside", "last"]


def split_scales(source: Path, place: Path, order: Order = "first", scale: str = "F32") -> Path:
    """Write the checkpoint in `source` with its layers' matrices in FP8 blocks.

    Scales stand before all else in a file, as DeepSeek's, beside their weights, or at the end;
    `source` gets the numbers that those mean, in the same order.
    """
    place.mkdir()
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            (place / file.name).write_bytes(file.read_bytes())
    config = json.loads((source / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "quantization_config": CONFIG}))
    for file in source.glob("*.safetensors"):
        _split(file, place / file.name, order, scale)
    return place


def _split(source: Path, place: Path, order: Order, scale: str) -> None:
    data = source.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8:start])
    header.pop("__metadata__", None)
    kept: list[tuple[str, str, list[int], bytes]] = []
    scales: list[tuple[str, str, list[int], bytes]] = []
    plain: list[tuple[str, str, list[int], bytes]] = []
    for name, told in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = told["data_offsets"]
        own = data[start + begin : start + end]
        if not MATRIX.search(name):
            kept.append((name, told["dtype"], told["shape"], own))
            plain.append(kept[-1])
            continue
        rows, columns = told["shape"]
        form = Format(kind="fp8", blocks=True)
        codes, factors = map(bytes, round_rows(form, own, (rows, columns), told["dtype"], 0.0))
        wide = _bfloat16(factors)
        grid = [-(-rows // BLOCK), -(-columns // BLOCK)]
        stored = wide.astype("<f4").tobytes() if scale == "F32" else factors
        kept.append((name, "F8_E4M3", [rows, columns], codes))
        added = (f"{name}_scale_inv", scale, grid, stored)
        (kept if order == "beside" else scales).append(added)
        numbers = np.array([e4m3(code) for code in range(256)], np.float32)
        spread = np.kron(wide.reshape(grid), np.ones((BLOCK, BLOCK), np.float32))
        product = numbers[np.frombuffer(codes, np.uint8)].reshape(rows, columns)
        product = product * spread[:rows, :columns]
        plain.append((name, "BF16", [rows, columns], to_bfloat16(product)))
    place.write_bytes(_file([*scales, *kept] if order == "first" else [*kept, *scales]))
    source.write_bytes(_file(plain))


def _file(tensors: list[tuple[str, str, list[int], bytes]]) -> bytes:
    header, end = {}, 0
    for name, dtype, shape, data in tensors:
        offsets = [end, end + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        end += len(data)
    return safetensors_bytes(header, b"".join(one[3] for one in tensors))


def e4m3(code: int) -> float:
    """Return the number of a code; NaN for the two that are none."""
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    if code & 127 == 127:
        return float("nan")
    value = mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -value if sign else value


def to_bfloat16(numbers: NDArray[np.float32]) -> bytes:
    """Round to the nearest, ties to even, one by one: the slow way."""
    bits = np.ascontiguousarray(numbers).view(np.uint32).astype(np.uint64)
    upper, lower = bits >> np.uint64(16), bits & np.uint64(0xFFFF)
    up = (lower > 0x8000) | ((lower == 0x8000) & (upper & np.uint64(1) == 1))
    return bytes((upper + up).astype("<u2").tobytes())


def _bfloat16(data: bytes) -> NDArray[np.float32]:
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
