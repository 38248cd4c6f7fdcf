"""Matrices that engines make one of, and of which only a part is quantized.

An engine gives such a matrix one scheme: it refuses the checkpoint when the weights are loaded,
or takes the plain part for packed words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from packager.catalog.engine_layers import EXPERTS, EngineLayers

MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class PartlyQuantized:
    """One matrix of an engine, as its parts lie in a checkpoint."""

    name: str  # `model.layers.0.self_attn.qkv_proj`
    plain: tuple[str, ...]
    quantized: tuple[str, ...]

    @property
    def words(self) -> str:
        """Return what belongs together, and which part of it is not quantized."""
        whole, parts = self.name.rpartition(".")[0], (*self.plain, *self.quantized)
        if self.name.endswith(f".{EXPERTS}"):
            of = f"{len(self.plain)} of {len(parts)} matrices of {self.name}"
            return f"{of} ({', '.join(self.plain[:MOST_NAMED])}{_more(self.plain)})"
        names = [part.removeprefix(f"{whole}.") for part in sorted(parts)]
        left = ", ".join(part.removeprefix(f"{whole}.") for part in self.plain)
        return f"{left} of {', '.join(names)} in {whole}"


def find_partly_quantized(
    layers: EngineLayers, quantized: Iterable[str], plain: Collection[str]
) -> Iterator[PartlyQuantized]:
    """Yield matrices of an engine that have quantized and plain parts, in the order of names."""
    if not plain:
        return
    unquantized = frozenset(plain)
    fusions: Mapping[tuple[str, str], list[str]] = layers.fusions((*quantized, *plain))
    for (path, name), parts in sorted(fusions.items()):
        left = tuple(part for part in parts if part in unquantized)
        if 0 < len(left) < len(parts):
            kept = tuple(part for part in parts if part not in unquantized)
            yield PartlyQuantized(f"{path}.{name}", left, kept)


def _more(names: tuple[str, ...]) -> str:
    return " …" if len(names) > MOST_NAMED else ""
