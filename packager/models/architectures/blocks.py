"""Layers that differ one by one: `block_configs` of NVIDIA's pruned Llamas (DeciLM, Nemotron)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packager.models.architectures.reading import LARGEST, Config

MULTIPLE = 256  # what the size of an MLP is rounded up to: vLLM 0.32 models/nemotron_nas.py


@dataclass(frozen=True, slots=True)
class Block:
    """One layer."""

    heads_a_group: int  # that share a key-value head; 0: no attention in this layer
    intermediate_size: int  # 0: no MLP, or one of a linear layer

    @property
    def attends(self) -> bool:
        return self.heads_a_group > 0


def read_blocks(config: Config) -> tuple[Block, ...]:
    """Read them; () for a model whose layers are alike."""
    listed = config.listed("block_configs")
    if listed is None or not all(isinstance(one, dict) for one in listed):
        return ()
    hidden_size = config.number("hidden_size", needed=False)
    return tuple(_block(one, hidden_size) for one in listed)


def _block(stated: Mapping[str, Any], hidden_size: int) -> Block:
    attention, mlp = stated.get("attention"), stated.get("ffn")
    heads = attention.get("n_heads_in_group") if isinstance(attention, dict) else None
    multiple = mlp.get("ffn_mult") if isinstance(mlp, dict) else None
    return Block(
        heads_a_group=heads if type(heads) is int and 0 < heads <= LARGEST else 0,
        intermediate_size=_rounded(multiple, hidden_size)
        if isinstance(multiple, int | float) and 0 < multiple < MOST_MULTIPLE
        else 0,
    )


MOST_MULTIPLE = 1024.0


def _rounded(multiple: float, hidden_size: int) -> int:
    size = int(2 * multiple * hidden_size / 3)
    return -(-size // MULTIPLE) * MULTIPLE
