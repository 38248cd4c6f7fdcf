"""Columns of a matrix before and after scales moved into them, and the scales between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

ROWS = 16  # of a matrix, and tokens of a text, that are compared


@dataclass(frozen=True)
class Columns:
    """Some rows of a matrix, and the largest weight of each of its columns."""

    rows: torch.Tensor  # the first that are not zero throughout
    largest: torch.Tensor
    at: tuple[torch.Tensor, torch.Tensor]  # which rows, and in which row the largest stands

    @classmethod
    def of(cls, weight: torch.Tensor) -> Columns:
        """Choose rows of a matrix as it is."""
        held = weight.detach()
        rows = held.any(1).nonzero().flatten()[:ROWS]
        found = cls(torch.empty(0), torch.empty(0), (rows, held.abs().argmax(0)))
        return found.again(weight)

    def again(self, weight: torch.Tensor) -> Columns:
        """Return the same rows and places of another matrix."""
        rows, places = self.at
        held = weight.detach()
        largest = held.gather(0, places[None])[0]
        return Columns(held[rows].float().cpu(), largest.float().cpu(), self.at)

    def beside(self, other: Columns) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Pair what is compared."""
        yield self.rows, other.rows
        yield self.largest, other.largest


def scale_between(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Return how many times as large the second are, each by the pair that has most digits."""
    before, after = (torch.stack(one).abs() for one in zip(*pairs, strict=True))
    best = torch.minimum(before, after).argmax(0, keepdim=True)
    return (after.gather(0, best) / before.gather(0, best))[0].nan_to_num(1.0, 1.0, 1.0)


def by_output(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """Return the largest number of each of the last outputs."""
    held = tensor.detach()[-count:].float().cpu()
    return held if held.ndim == 1 else held.gather(1, held.abs().argmax(1, keepdim=True))[:, 0]
