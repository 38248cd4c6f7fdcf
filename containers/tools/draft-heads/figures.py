"""How well a head foretells the model, measured on held-out texts.

At a position the head makes k proposals, one after another.  The model takes
those before the first that is not its own choice, so what counts of the i-th is
how often it and all before it are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rows import Row, positions


@dataclass
class Tally:
    """Running sums over texts. Sequences have one entry for each of the k proposals."""

    positions: int = 0
    accepted: list[int] = field(default_factory=list)
    loss_sums: list[float] = field(default_factory=list)  # nats
    loss_counts: list[int] = field(default_factory=list)

    def add(
        self,
        *,
        positions: int,  # where all k proposals could be compared
        accepted: Sequence[int],  # of them, where proposals 1..i were all right
        loss_sums: Sequence[float],
        loss_counts: Sequence[int],  # tokens that a sum is of; these may be more
    ) -> None:
        """Take one text."""
        self.positions += positions
        self.accepted = _added(self.accepted, accepted)
        self.loss_sums = _added(self.loss_sums, loss_sums)
        self.loss_counts = _added(self.loss_counts, loss_counts)

    @property
    def loss(self) -> float:
        """Mean over the proposals of each one's mean."""
        pairs = zip(self.loss_sums, self.loss_counts, strict=True)
        means = [total / count for total, count in pairs if count]
        return sum(means) / len(means)

    @property
    def acceptance(self) -> list[float]:
        """For each i, the share of positions where proposals 1..i were all right."""
        return [count / self.positions for count in self.accepted]

    @property
    def expected_length(self) -> float:
        """Tokens for each run of the model: the proposals it takes and its own."""
        return 1 + sum(self.acceptance)


def report(
    method: str,
    *,
    rows: Sequence[Row],
    held_out: Sequence[Row],
    epochs: int,
    steps: int,
    before: Tally,
    after: Tally,
    kept: int,
) -> dict[str, Any]:
    """Give `training.json`. No times: the same inputs give the same bytes."""
    return {
        "method": method,
        "texts": len(rows),
        "tokens": sum(map(positions, rows)),
        "held_out_texts": len(held_out),
        "held_out_tokens": sum(map(positions, held_out)),
        "epochs": epochs,
        "steps": steps,
        "kept_step": kept,
        "loss_before": _number(before.loss),
        "loss": _number(after.loss),
        "acceptance_before": [_number(share) for share in before.acceptance],
        "acceptance": [_number(share) for share in after.acceptance],
        "expected_length_before": _number(before.expected_length),
        "expected_length": _number(after.expected_length),
    }


def _added(sums: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    return [one + two for one, two in zip(sums or [0] * len(more), more, strict=True)]


def _number(value: float) -> float | None:
    """Six digits are more than the data holds; JSON knows no NaN."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
