"""Matrices as segments that compute: rows are read, rounded on all cores, and given in order.

A matrix is read once, or as often as its format needs: once more for the largest magnitude of all
that shares a scale, and once for each small output where those are too large to be kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packager.core.errors import ModelRefused
from packager.core.image import Computed, Place, Sources
from packager.core.units import MIB
from packager.optimize.quantize.stream.formats import ITEM_BYTES, Format
from packager.optimize.stream.blocks import BLOCK_ELEMENTS, Rows, cut_rows, run_in_order
from packager.optimize.stream.tensors import unordered

KEPT_BYTES = 256 * MIB  # of scales while the weights of their matrix pass

Parts = tuple[bytes | memoryview, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedMatrix:
    """Makes the bytes of what stands for a matrix, all outputs one after another.

    Its first source is the matrix.  Where a global scale is needed, the others are all that share
    it, the matrix itself among them, the second one: they are read in no order.
    """

    form: Format
    shape: tuple[int, int]
    dtype: str
    name: str  # of the matrix in the checkpoint, for messages
    file: str  # that it is in, likewise

    @property
    def identity(self) -> str:
        """Return the format, which has its version, and the matrix's type and shape."""
        rows, columns = self.shape
        return f"{self.form.name} {self.dtype} {rows}x{columns}"

    def make(self, sources: Sources) -> Iterator[bytes | memoryview]:
        """Yield weights, then what is beside them; raise `ModelRefused` for what is no number."""
        from packager.optimize.quantize.stream.arithmetic import NotFinite, whole_outputs

        try:
            largest = self._largest(sources)
            whole = whole_outputs(self.form, self.shape, self.dtype, largest)
            outputs = self.form.outputs(self.shape, self.dtype)
            small = sum(output.size for output in outputs[1:])
            kept: list[list[bytes]] = [[one] for one in whole]
            found = 0.0
            for parts, own in self._rounded(sources.read(0), largest):
                found = max(found, own)
                yield parts[0]
                if small <= KEPT_BYTES:
                    for one, part in zip(kept[1:], parts[1:], strict=False):
                        one.append(bytes(part))
            if self.form.needs_largest and found != sources.memo[sources.places[1]]:
                raise ModelRefused(
                    f"{self.name} in {self.file} changed while it was read",
                    hint="build again once nothing writes to the model",
                )
            for number, one in enumerate(kept[1:], 1):
                yield from one
                if small > KEPT_BYTES and not whole[number]:
                    again = self._rounded(sources.read(0), largest)
                    yield from (parts[number] for parts, _ in again)
        except NotFinite:
            raise ModelRefused(
                f"{self.name} in {self.file} has values that are NaN or infinite: no answer of "
                "this model is a number",
                hint="download the checkpoint again, or take another one",
            ) from None

    def _largest(self, sources: Sources) -> float:
        """Return the largest magnitude of all that shares a global scale; 0 where nothing does."""
        if not self.form.needs_largest:
            return 0.0
        for number, place in enumerate(sources.places[1:], 1):
            if place not in sources.memo:
                blocks = cut_rows(sources.read(number), ITEM_BYTES[self.dtype], BLOCK_ELEMENTS)
                sources.memo[place] = max(run_in_order(self._magnitude, blocks))
        return max(sources.memo[place] for place in sources.places[1:])

    def _magnitude(self, rows: Rows) -> float:
        from packager.optimize.quantize.stream.arithmetic import largest_magnitude

        return largest_magnitude(rows[0], self.dtype)

    def _rounded(
        self, chunks: Iterator[memoryview], largest: float
    ) -> Iterator[tuple[Parts, float]]:
        """Yield the outputs of blocks of rows, with the largest magnitude of each if it is used."""
        from packager.optimize.quantize.stream.arithmetic import round_rows

        columns = self.shape[1]

        def work(rows: Rows) -> tuple[Parts, float]:
            own = self._magnitude(rows) if self.form.needs_largest else 0.0
            return round_rows(self.form, rows[0], (rows[1], columns), self.dtype, largest), own

        multiple = self.form.row_multiple
        count = max(1, BLOCK_ELEMENTS // (columns * multiple)) * multiple
        return run_in_order(work, cut_rows(chunks, columns * ITEM_BYTES[self.dtype], count))


def rounded_matrix(
    maker: RoundedMatrix,
    place: Place,
    others: Iterable[Place] = (),
) -> Computed:
    """Describe what stands for a matrix as one segment; `others` share its global scale."""
    outputs = maker.form.outputs(maker.shape, maker.dtype)
    sources: tuple[Place, ...] = (place,)
    if maker.form.needs_largest:
        sources = (place, *map(unordered, (place, *others)))
    return Computed(maker=maker, sources=sources, length=sum(output.size for output in outputs))
