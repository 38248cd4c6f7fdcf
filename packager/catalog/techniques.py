"""Techniques by name, read from `data/techniques.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from packager.core.share import read_shipped

TABLE = Path(__file__).parent / "data" / "techniques.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Technique:
    """A quantizer, a compiler or a draft, and where its result is served."""

    name: str
    kind: Literal["quantizer", "compiler", "draft"]
    gives: str
    summary: str
    families: tuple[str, ...]
    devices: tuple[str, ...]
    source: str
    date: str
    streams: bool = False  # most of what it makes is made while weights are read, by no tool


@cache
def techniques() -> tuple[Technique, ...]:
    """List every technique, quantizers first."""
    table = read_shipped(TABLE)["technique"]
    return tuple(
        Technique(**{**row, "families": tuple(row["families"]), "devices": tuple(row["devices"])})
        for row in table
    )
