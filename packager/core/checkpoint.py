"""Published quantized checkpoints of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedCheckpoint:
    """A published checkpoint of a model with fewer bits."""

    model: str  # hub id of what was quantized
    reference: str  # hub id of the checkpoint
    method: str  # `AWQ`, `NVFP4`
    weight_format: str  # as in `Instance.formats`
    source: str
    date: str
