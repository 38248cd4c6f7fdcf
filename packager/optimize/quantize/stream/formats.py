"""Formats that are computed in the stream: what stands for a matrix, with its sizes.

Nothing here computes: names, types and shapes follow from the matrix's shape and type, so that a
file is described before a byte of it is read.  `arithmetic` gives the bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["fp8", "int8", "int4", "mxfp4", "mxfp8", "nvfp4"]
ARITHMETIC = "1"  # what computes the bytes; another one gets another number
ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I8": 1, "I32": 4, "I64": 8}
SOURCES = ("BF16", "F16", "F32")  # types of matrices that are computed with
BLOCK = 128  # rows and columns that share a scale
_PACKED_ROWS = 8  # zero points of so many rows are one word


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A tensor that stands for a matrix, or a part of it."""

    name: str  # beside the matrix: `weight_scale`
    dtype: str  # safetensors spelling
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What a matrix becomes: numbers, and what shares a scale."""

    kind: Kind
    group_size: int = 0  # inputs that share a scale; 0: a whole row
    blocks: bool = False  # `BLOCK` rows and columns share a scale
    symmetric: bool = True
    packed: bool = False  # integers in words of 32 bits, whatever their own size

    @property
    def name(self) -> str:
        """Identify the format, with the version of its arithmetic."""
        shared = "block" if self.blocks else f"g{self.group_size}" if self.group_size else "row"
        words = [self.kind, shared, *(["packed"] if self.packed else [])]
        return "-".join((*words, *([] if self.symmetric else ["asymmetric"]), ARITHMETIC))

    @property
    def row_multiple(self) -> int:
        """Rows that are computed together, or a multiple of them."""
        return BLOCK if self.blocks else 1 if self.symmetric else _PACKED_ROWS

    @property
    def needs_largest(self) -> bool:
        """Return whether the largest magnitude of the whole matrix is needed first."""
        return self.kind == "nvfp4"

    def fits(self, shape: tuple[int, ...], dtype: str) -> bool:
        """Return whether a tensor of this shape and type can be computed."""
        if len(shape) != 2 or dtype not in SOURCES or not all(shape):
            return False
        halves = shape[1] % 2 == 0 or self.kind not in ("mxfp4", "nvfp4")
        return halves and (not self.group_size or shape[1] % self.group_size == 0)

    def outputs(self, shape: tuple[int, ...], dtype: str) -> tuple[Output, ...]:
        """Return what stands for a matrix, in the order of the bytes.

        The weights come first, then larger elements before smaller ones, by name where they are
        equal.
        """
        rows, columns = shape
        groups = math.ceil(columns / self.group_size) if self.group_size else 1
        scales = (rows, groups)
        if self.blocks:
            scales = (math.ceil(rows / BLOCK), math.ceil(columns / BLOCK))
        scale = Output(name="weight_scale", dtype=dtype, shape=scales)
        if self.packed:
            bits = 4 if self.kind == "int4" else 8
            words = math.ceil(columns * bits / 32)
            made = [Output(name="weight_packed", dtype="I32", shape=(rows, words))]
            made += [Output(name="weight_shape", dtype="I64", shape=(2,))]
            if self.symmetric:
                return (*made, scale)
            zeros = (math.ceil(rows * bits / 32), groups)
            point = Output(name="weight_zero_point", dtype="I32", shape=zeros)
            return (*made, *((scale, point) if dtype == "F32" else (point, scale)))
        if self.kind in ("mxfp4", "nvfp4"):
            packed = Output(name="weight_packed", dtype="U8", shape=(rows, columns // 2))
            if self.kind == "mxfp4":
                return packed, Output(name="weight_scale", dtype="U8", shape=scales)
            whole = Output(name="weight_global_scale", dtype="F32", shape=(1,))
            return packed, whole, Output(name="weight_scale", dtype="F8_E4M3", shape=scales)
        weight = Output(
            name="weight", dtype="I8" if self.kind == "int8" else "F8_E4M3", shape=shape
        )
        if self.kind == "mxfp8":
            return weight, Output(name="weight_scale", dtype="U8", shape=scales)
        return weight, scale
