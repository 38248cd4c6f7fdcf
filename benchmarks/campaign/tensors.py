"""How far two quantized checkpoints differ: run in a tool environment, which has NumPy.

    python tensors.py ONE OTHER

Names, types and shapes must agree.  Of each kind of tensor the share of equal values is told:
of the integers that are packed in it, of FP8 and other numbers as they are.  Of scales also the
largest relative difference.  The last line of stdout is one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "i1", "U8": "u1"}
TYPES |= {"I16": "<i2", "I32": "<i4", "I64": "<i8", "BOOL": "u1", "F8_E4M3": "u1", "F8_E5M2": "u1"}
PACKED = {"weight_packed", "qweight", "qzeros", "weight_zero_point"}  # 8 integers in an int32


def main(one: Path, other: Path) -> dict[str, Any]:
    """Compare all tensors."""
    first, second = headers(one), headers(other)
    names = sorted(first.keys() & second.keys())
    described = [name for name in names if first[name][1:3] != second[name][1:3]]
    kinds: dict[str, dict[str, Any]] = {}
    for name in names:
        if name in described:
            continue
        a, b = read(first[name]), read(second[name])
        suffix = name.rpartition(".")[2]
        kind = kinds.setdefault(suffix, {"tensors": 0, "identical": 0, "values": 0, "equal": 0})
        kind["tensors"] += 1
        kind["identical"] += int(a.tobytes() == b.tobytes())
        values, equal = compared(a, b, suffix in PACKED and first[name][1] == "I32")
        kind["values"] += values
        kind["equal"] += equal
        if "scale" in suffix:
            apart = relative(numbers(a, first[name][1]), numbers(b, first[name][1]))
            kind["largest_relative"] = max(kind.get("largest_relative", 0.0), apart)
    for kind in kinds.values():
        kind["equal_share"] = round(kind.pop("equal") / max(1, kind.pop("values")), 6)
    return {
        "tensors": len(names),
        "identical": sum(kind["identical"] for kind in kinds.values()),
        "only_in_one": sorted(first.keys() ^ second.keys())[:5],
        "described_otherwise": described[:5],
        "comparable": first.keys() == second.keys() and not described,
        "kinds": kinds,
    }


def compared(a: np.ndarray, b: np.ndarray, packed: bool) -> tuple[int, int]:
    """Count the values of a tensor, and those that are equal."""
    if not packed:
        return a.size, int(np.count_nonzero(a.view(f"V{a.itemsize}") == b.view(f"V{b.itemsize}")))
    differing = a.view("u4") ^ b.view("u4")
    unequal = sum(int(np.count_nonzero(differing >> bits & 15)) for bits in range(0, 32, 4))
    return a.size * 8, a.size * 8 - unequal


def relative(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference of two tensors, relative to the larger of the two values."""
    largest = np.maximum(np.abs(a), np.abs(b))
    apart = np.abs(a - b)[largest > 0] / largest[largest > 0]
    return round(float(apart.max(initial=0.0)), 6)


def numbers(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return the values of scales in 64 bits."""
    if dtype == "BF16":
        return (array.astype("<u4") << 16).view("<f4").astype("f8")
    return array.astype("f8")  # of FP8 the bits: their order is that of the values


def headers(directory: Path) -> dict[str, tuple[Path, str, tuple[int, ...], int, int]]:
    """Read where each tensor is: file, type, shape, first and last byte."""
    found = {}
    for path in sorted(directory.glob("*.safetensors")):
        found |= dict(_header(path))
    return found


def _header(path: Path) -> Iterator[tuple[str, tuple[Path, str, tuple[int, ...], int, int]]]:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    for name, told in header.items():
        if name != "__metadata__":
            begin, end = told["data_offsets"]
            start = 8 + size
            yield name, (path, told["dtype"], tuple(told["shape"]), start + begin, start + end)


def read(where: tuple[Path, str, tuple[int, ...], int, int]) -> np.ndarray:
    """Read a tensor as a flat array."""
    path, dtype, _, begin, end = where
    with path.open("rb") as file:
        file.seek(begin)
        return np.frombuffer(file.read(end - begin), dtype=TYPES[dtype])


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]))))
