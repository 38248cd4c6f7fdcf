"""Defaults of transformers' configuration classes, by `model_type`: `data/model_types.json`.

A published config.json leaves out what equals the default of its class and spells some numbers
in the class's own way.  Read from transformers by scripts/model-types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

TABLE = Path(__file__).parent / "data" / "model_types.json"
EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ModelType:
    """One class of configurations."""

    defaults: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    names: Mapping[str, str] = field(default_factory=lambda: EMPTY)  # usual key → its own
    parts: Mapping[str, str] = field(default_factory=lambda: EMPTY)  # nested key → its type


def find_type(model_type: object) -> ModelType | None:
    """Return the configuration class of the type that config.json states; None when unknown."""
    row = _table()["types"].get(model_type) if isinstance(model_type, str) else None
    return None if row is None else ModelType(**row)


def is_type(model_type: str) -> bool:
    """Whether transformers has a class for it."""
    return model_type in _table()["types"]


def generating_classes() -> Mapping[str, Literal["text", "encoder-decoder", "speech"]]:
    """Return the model classes of transformers that write text, and from what."""
    classes: Mapping[str, Literal["text", "encoder-decoder", "speech"]] = _table()["classes"]
    return classes


def own_attention() -> frozenset[str]:
    """Return those of them that attend by code of their own, which no engine can replace."""
    return frozenset(_table()["own_attention"])


def loaders_of(model_type: str) -> Mapping[str, tuple[str, ...]]:
    """Return the classes that each loader of transformers takes for a type, by the loader."""
    found = _table()["loaders"].get(model_type, {})
    return {loader: tuple(classes) for loader, classes in found.items()}


@cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(TABLE.read_bytes())
    return table
