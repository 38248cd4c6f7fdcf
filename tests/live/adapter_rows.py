"""Rows of adapted weights as numbers that two programs can compare: run beside PEFT and engines.

A row is known by its weights' product with a fixed vector, wherever an engine keeps it, and with
that goes the product of what an adapter adds to it.  So fused, stacked and reordered layers are
compared without a word about names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

NEAR = 0.02  # of a module's own size: matrices of 16 bits, multiplied, are within it
SAME = 1e-9  # of a product with one row of weights, by the order of its sum


def projected(weight: Any, delta: Any) -> Any:
    """Return both numbers of each row, and the number of its inputs."""
    vector = torch.randn(
        weight.shape[-1], dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    both = [matrix.detach().cpu().double().reshape(-1, matrix.shape[-1]) @ vector
            for matrix in (weight, delta)]  # fmt: skip
    inputs = torch.full_like(both[0], weight.shape[-1])
    return torch.stack((inputs, *both))


def differences(meant: dict[str, Any], found: Iterable[Any]) -> list[str]:
    """Return what an engine adds otherwise: modules that PEFT changes, and rows that it does not.

    `meant` has the rows of each module that PEFT changes; `found` those of an engine's layers.
    """
    found = list(found)
    rows = torch.cat(found, 1) if found else torch.zeros(3, 0, dtype=torch.float64)
    used = torch.zeros(rows.shape[1], dtype=torch.bool)
    wrong = []
    for name, own in meant.items():
        at = [_place(rows, *row[:2].tolist()) for row in own.t()]
        if -1 in at:
            wrong.append(f"{name}: its weights are in no layer with slots")
            continue
        used[at] = True
        distance = (rows[2, at] - own[2]).norm() / own[2].norm()
        if not distance <= NEAR:
            wrong.append(f"{name}: {distance:.3g} beside what PEFT adds")
    strays = int((rows[2, ~used].abs() > 0).sum())
    return wrong + ([f"{strays} rows of other modules are changed"] if strays else [])


def _place(rows: Any, inputs: float, weight: float) -> int:
    apart = (rows[1] - weight).abs() + (rows[0] != inputs)
    best = int(apart.argmin()) if rows.shape[1] else -1
    return best if best >= 0 and apart[best] <= SAME * (1 + abs(weight)) else -1
