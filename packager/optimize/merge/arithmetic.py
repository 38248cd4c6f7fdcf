"""Sums of a matrix and the product of two thin ones, the same bits on every processor.

Products are summed rank by rank in float64, element by element: no library of linear algebra, whose
order of additions depends on the processor, and no fused operation.  The sum with the base's own
value is rounded to float32, as PEFT's is, and then to the base's type, ties to even.  Products of
embeddings and of experts' parameters are rounded to the base's type first: so PEFT does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Product:
    """A product that is added to some of the rows."""

    first: int  # of the rows
    left: Doubles  # those rows by ranks
    right: Doubles  # ranks by columns
    scale: float
    rounded: bool  # to the matrix's type before it is added


class NotFinite(ValueError):
    """A number is a NaN or an infinity, or the sum is beyond its type."""


def read_matrix(data: bytes, shape: tuple[int, int], dtype: str) -> Doubles:
    """Return the numbers of a type as float64, which holds all of them; raise `NotFinite`."""
    found = _widened(data, dtype).reshape(shape)
    if not np.isfinite(found).all():
        raise NotFinite
    return found


def add_products(rows: bytes, columns: int, dtype: str, products: Iterable[Product]) -> bytes:
    """Return rows of a matrix with products added; raise `NotFinite`."""
    sums = read_matrix(rows, (-1, columns), dtype)
    for product in products:
        part = sums[product.first : product.first + len(product.left)]
        delta = np.zeros_like(part)
        term = np.empty_like(part)
        for rank in range(len(product.right)):
            np.multiply(product.left[:, rank, None], product.right[rank], out=term)
            np.add(delta, term, out=delta)
        np.multiply(delta, product.scale, out=delta)
        if product.rounded:
            delta = _widened(_written(delta, dtype), dtype).reshape(delta.shape)
        np.add(part, delta, out=part)
    return _written(sums, dtype)


def _widened(data: bytes, dtype: str) -> Doubles:
    if dtype == "F32":
        return np.frombuffer(data, dtype="<f4").astype(np.float64)
    if dtype == "F16":
        return np.frombuffer(data, dtype="<f2").astype(np.float64)
    bits = np.frombuffer(data, dtype="<u2").astype(np.uint32)
    bits <<= np.uint32(16)
    return bits.view(np.float32).astype(np.float64)


def _written(sums: Doubles, dtype: str) -> bytes:
    with np.errstate(over="ignore", invalid="ignore"):
        single = sums.astype(np.float32)
        made: NDArray[Any] = single.astype(np.float16) if dtype == "F16" else single
    if not np.isfinite(made).all():
        raise NotFinite
    if dtype != "BF16":
        return made.tobytes()
    bits = single.view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    upper = (bits + even + np.uint32(0x7FFF)) >> np.uint32(16)
    if ((upper & np.uint32(0x7F80)) == np.uint32(0x7F80)).any():
        raise NotFinite
    return upper.astype(np.uint16).tobytes()
