"""How engines build the matrices of a class: which become one, and along which side each is cut.

`data/engine_layers.json` is read from vLLM by scripts/engine-layers, and used for other engines
too.  A class that it does not list is assumed to be built like most.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

TABLE = Path(__file__).parent / "data" / "engine_layers.json"

Cut = Literal["inputs", "outputs", "whole"]

EXPERTS = "experts"  # of one layer: engines hold all of them in two tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLayers:
    """How one class is built. Names are the last parts of modules, as in checkpoints."""

    fused: Mapping[str, tuple[str, ...]]  # matrix of the engine → its parts, in order
    inputs: frozenset[str]  # cut along the inputs
    whole: frozenset[str]  # on every device

    def cut_of(self, module: str) -> Cut:
        """Return along which side several devices cut a module that is not an expert's."""
        name = module.rpartition(".")[2]
        return "inputs" if name in self.inputs else "whole" if name in self.whole else "outputs"

    def fusions(self, modules: Iterable[str]) -> dict[tuple[str, str], list[str]]:
        """Group modules by what they become, `(PATH, NAME)`; those that stay alone are left out.

        Parts come in the engine's order, as far as they are there.
        """
        found: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for module in modules:
            for key, place in self._places(module):
                found.setdefault(key, []).append((place, module))
        return {
            key: [module for _, module in sorted(parts)]
            for key, parts in found.items()
            if len(parts) > 1
        }

    def _places(self, module: str) -> Iterable[tuple[tuple[str, str], int]]:
        start, is_expert, _ = module.partition(".experts.")
        if is_expert:
            yield (start, EXPERTS), 0
            return
        for name, parts in self.fused.items():
            for place, part in enumerate(parts):
                if module.endswith(f".{part}"):
                    yield (module.removesuffix(f".{part}"), name), place


USUAL = EngineLayers(
    fused={
        "qkv_proj": ("q_proj", "k_proj", "v_proj"),
        "gate_up_proj": ("gate_proj", "up_proj"),
        "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    },
    inputs=frozenset(
        {"o_proj", "down_proj", "out_proj", "dense", "dense_4h_to_h", "fc2", "c_proj", "wo", "w2"}
    ),
    whole=frozenset({"q_a_proj", "kv_a_proj_with_mqa"}),
)


def find_layers(architecture: str) -> EngineLayers:
    """Return how engines build a class of models."""
    return _rows().get(architecture, USUAL)


@cache
def _rows() -> Mapping[str, EngineLayers]:
    table: Mapping[str, Any] = json.loads(TABLE.read_bytes())
    return {
        name: EngineLayers(
            fused={fused: tuple(parts) for fused, parts in row["fused"].items()},
            inputs=frozenset(row["inputs"]),
            whole=frozenset(row["whole"]),
        )
        for row in table["layers"]
        for name in row["classes"]
    }
