"""Matrices whose weights share scales in blocks, or in groups along the inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

LARGEST = 2**16  # side of a block

DIGITS = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A matrix whose weights share scales, in the sizes that it is computed in."""

    module: str
    outputs: int
    inputs: int
    rows: int  # outputs that share a scale; 1: groups lie along the inputs alone
    columns: int  # inputs that share one
    packed: int = 1  # outputs whose zero points, or weights, share a word
    by_rows: bool = True  # stored as `weight`, with a row and a scale for each output

    @property
    def is_expert(self) -> bool:
        return ".experts." in f"{self.module}."

    @property
    def words(self) -> str:
        if self.rows == 1:
            return f"groups of {self.columns} quantized weights"
        return f"blocks of {self.rows} by {self.columns} quantized weights"

    @property
    def packed_words(self) -> str:
        """Return what the words are called in messages."""
        return f"words with the zero points of {self.packed} outputs"


def make_blocked(
    module: str, sides: tuple[int, int], block: tuple[int, int], *, packed: int, by_rows: bool
) -> Blocked:
    """Make the value of a matrix with so many outputs and inputs."""
    return Blocked(
        module=module,
        outputs=sides[0],
        inputs=sides[1],
        rows=block[0],
        columns=block[1],
        packed=packed,
        by_rows=by_rows,
    )


def block_of(block: object) -> tuple[int, int]:
    """Return the outputs and inputs of a block; (1, 1) for an odd one."""
    if not isinstance(block, list | tuple) or len(block) != 2:
        return (1, 1)
    rows, columns = block
    sizes = (rows, columns)
    known = all(type(one) is int and 0 < one <= LARGEST for one in sizes)
    return sizes if known else (1, 1)


def kind_of(module: str) -> str:
    """Return a name in which all layers, and all experts, are the same."""
    return DIGITS.sub("*", module)


def one_of_each(found: Iterable[Blocked]) -> tuple[Blocked, ...]:
    """Return the first of those that differ in the number of layer or expert alone."""
    kinds: dict[tuple[object, ...], Blocked] = {}
    for one in found:
        key = (kind_of(one.module), replace(one, module=""))
        kinds.setdefault(key, one)
    return tuple(kinds.values())
