"""Tensors as segments that compute: an adapter's products are added while the base is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from packager.core.errors import ModelRefused
from packager.core.image import Sources
from packager.optimize.stream.blocks import cut_rows, run_in_order

ARITHMETIC = "1"  # what computes the bytes; another one gets another number
WIDTHS = {"BF16": 2, "F16": 2, "F32": 4}  # bytes of the types that are merged
BLOCK_ELEMENTS = 1 << 16  # of a tensor at once: three times as many numbers of 8 bytes are in use


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A thin matrix of an adapter: which source it is, and which part of it counts."""

    source: int
    shape: tuple[int, int]
    dtype: str  # safetensors spelling


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A product that is added to some rows: `B × A` of PEFT, times a scale.

    Of a parameter with all experts, `A` has the ranks of an expert one after another, and `B` one
    column of each expert for every rank.
    """

    row: int  # of the tensor, the first that is changed
    rows: int
    rank: int
    scale: float
    a: Factor  # ranks by inputs
    b: Factor  # outputs by ranks
    transposed: bool = False  # the tensor has inputs by outputs
    rounded: bool = False  # the product is rounded to the tensor's type before it is added
    a_row: int = 0
    b_row: int = 0
    b_column: int = 0
    b_step: int = 1  # columns from one rank to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedTensor:
    """Makes the bytes of a tensor with an adapter's products. Its first source is the tensor.

    Dimensions but the last are rows.  Updates are in the order of their rows.
    """

    shape: tuple[int, int]
    dtype: str
    updates: tuple[Update, ...]
    name: str  # of the tensor in the checkpoint, for messages
    adapter: str  # its name, likewise

    @property
    def identity(self) -> str:
        """Return what is computed, with the version of the arithmetic."""
        parts = [self.dtype, self.shape, *map(asdict, self.updates)]
        return f"merge {ARITHMETIC} {json.dumps(parts, sort_keys=True)}"

    def make(self, sources: Sources) -> Iterator[bytes | memoryview]:
        """Yield the sums; raise `ModelRefused` where one is no number of the tensor's type."""
        from packager.optimize.merge.arithmetic import (
            NotFinite,
            Product,
            add_products,
            read_matrix,
        )

        kept = {}
        for factor in {one for update in self.updates for one in (update.a, update.b)}:
            data = b"".join(bytes(chunk) for chunk in sources.read(factor.source))
            try:
                kept[factor] = read_matrix(data, factor.shape, factor.dtype)
            except NotFinite:
                raise self._refusal("has a matrix with") from None
        columns = self.shape[1]
        count = max(1, BLOCK_ELEMENTS // columns)

        def work(block: tuple[int, bytes, int]) -> bytes:
            start, rows, height = block
            found = []
            for update in self.updates:
                first = max(start, update.row)
                last = min(start + height, update.row + update.rows)
                if first < last:
                    own = slice(first - update.row, last - update.row)
                    a = kept[update.a][update.a_row : update.a_row + update.rank]
                    b = kept[update.b][:, update.b_column :: update.b_step][:, : update.rank]
                    if update.transposed:
                        left, right = a[:, own].T, b.T[:, :columns]
                    else:
                        left, right = b[update.b_row :][own], a
                    found.append(Product(first - start, left, right, update.scale, update.rounded))
            return add_products(rows, columns, self.dtype, found)

        def numbered() -> Iterator[tuple[int, bytes, int]]:
            start = 0
            for rows, height in cut_rows(sources.read(0), columns * WIDTHS[self.dtype], count):
                yield start, rows, height
                start += height

        try:
            yield from run_in_order(work, numbered())
        except NotFinite:
            raise self._refusal(f"and {self.name} together have") from None

    def _refusal(self, what: str) -> ModelRefused:
        return ModelRefused(
            f"the adapter {self.adapter!r} {what} values that are NaN, infinite or beyond "
            f"{self.dtype}: {self.name}",
            hint="train the adapter again with a smaller scale, or serve it beside the base",
        )
