"""The serving shape: how many requests at once, and how long they may be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Upper bounds a serving engine is configured with."""

    max_batch: int  # concurrent sequences of one copy: each rank and worker has as many slots
    max_input_tokens: int  # prompt tokens of one request
    max_total_tokens: int  # prompt and generated tokens of one request

    @property
    def kv_tokens(self) -> int:
        """Return the tokens of KV cache that the shape needs when every slot is full."""
        return self.max_batch * self.max_total_tokens
