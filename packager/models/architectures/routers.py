"""Routers of experts and indexers of attention, by the headers: every quantizer leaves them whole.

They choose by small differences.  The worker decides the same by a model's modules
(`containers/tools/llmcompressor/structure.py`), and `tests/live/test_quantize_matrix.py` compares.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from packager.core.model import TensorInfo

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.", re.ASCII)
# `self_attn.indexer.wk` of DeepSeek-V3.2, `self_attn.index_q_proj` of MiniMax-M3
INDEXER = re.compile(r"[._]index(?:er)?[._]", re.ASCII | re.IGNORECASE)
EXPERTS = ".experts."
FUSED_EXPERTS = (".input_linear.weight", ".output_linear.weight")  # Granite's, of three dimensions
MOST_DIGITS = 9


def is_indexer(name: str) -> bool:
    """Whether a matrix belongs to what chooses tokens for sparse attention."""
    return INDEXER.search(name) is not None


def find_routers(tensors: Iterable[TensorInfo]) -> frozenset[str]:
    """Return matrices with an output for each expert of a layer, or one, that are no MLP's.

    They stand beside the experts; where none has an output for each, elsewhere in the layer.
    """
    counts: dict[str, int] = {}  # of experts, by what holds them and their router
    layers: dict[str, list[TensorInfo]] = {}
    for tensor in tensors:
        name, shape = tensor.name, tensor.shape
        if len(shape) not in (2, 3):
            continue
        block, inside, rest = name.partition(EXPERTS)
        number = rest.partition(".")[0]
        if inside and number.isdecimal() and len(number) <= MOST_DIGITS:
            counts[block] = max(counts.get(block, 0), int(number) + 1)
        elif len(shape) == 3 and (inside or name.endswith(FUSED_EXPERTS)):
            block = block if inside else name.rsplit(".", 2)[0]
            counts[block] = max(counts.get(block, 0), shape[0])
        elif len(shape) == 2 and not inside and (match := LAYER.search(name)) is not None:
            layers.setdefault(name[: match.end()], []).append(tensor)
    found: set[str] = set()
    for block, count in counts.items():
        match = LAYER.search(f"{block}.")
        matrices = layers.get(block[: match.end()], []) if match else []
        beside = [one for one in matrices if one.name.startswith(f"{block}.")]
        routers = _routers_of(beside, block, count)
        if count not in {one.shape[0] for one in routers} and match is not None:
            routers += _routers_of(matrices, block[: match.end()].rstrip("."), count)
        found.update(one.name for one in routers)
    return frozenset(found)


def _routers_of(matrices: list[TensorInfo], block: str, count: int) -> list[TensorInfo]:
    parents = Counter(_parent(one) for one in matrices)
    return [
        one
        for one in matrices
        if one.shape[0] in (1, count) and (_parent(one) == block or parents[_parent(one)] < 2)
    ]


def _parent(matrix: TensorInfo) -> str:
    return matrix.name.removesuffix(".weight").rpartition(".")[0]
