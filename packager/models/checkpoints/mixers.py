"""Mamba-2 mixers: what engines take their input projection apart into, by the headers.

`in_proj` holds gate, input, B, C and dt, and vLLM cuts each for itself (`MambaMixer2`, 0.32).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packager.core.model import TensorInfo

IN_PROJ = ".in_proj"
# Where the number of outputs stands in what is stored of a matrix.
_STORED = ((".weight", 0), (".weight_packed", 0), (".scales", 1))


def find_mixers(tensors: Iterable[TensorInfo]) -> Mapping[str, tuple[int, ...]]:
    """Return the outputs of each part of `in_proj`, by its module; none of other mixers.

    Mamba-1 has a state matrix of two dimensions, and linear attention no `in_proj`.
    """
    near = (".A_log", ".conv1d.weight", *(f"{IN_PROJ}{suffix}" for suffix, _ in _STORED))
    shapes = {one.name: one.shape for one in tensors if one.name.endswith(near)}
    found = {}
    for name, shape in shapes.items():
        holder = name.removesuffix(".A_log")
        mixed = shapes.get(f"{holder}.conv1d.weight", ())
        outputs = next(
            (
                shapes[stored][axis]
                for suffix, axis in _STORED
                if len(shapes.get(stored := f"{holder}{IN_PROJ}{suffix}", ())) == 2
            ),
            0,
        )
        if holder == name or len(shape) != 1 or len(mixed) != 3 or not outputs:
            continue
        inner = outputs - mixed[0] - shape[0]
        states, odd = divmod(mixed[0] - inner, 2)
        if inner > 0 and states > 0 and not odd:
            found[holder + IN_PROJ] = (inner, inner, states, states, shape[0])
    return found
