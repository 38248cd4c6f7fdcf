"""Spelling of sizes in each architecture's config.json: `data/architectures.toml`.

An unknown architecture is planned as a Llama, with a finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from packager.core.share import read_shipped

TABLE = Path(__file__).parent / "data" / "architectures.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertKeys:
    """Keys of config.json that describe a mixture of experts; the first that is there wins."""

    count: tuple[str, ...]
    per_token: tuple[str, ...]
    size: tuple[str, ...]  # of one expert's intermediate layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One row of the table, completed by its defaults."""

    name: str
    source: str
    fields: Mapping[str, tuple[str, ...]]  # our word → keys, the first that is there wins
    defaults: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    intermediate_multiple: int = 0  # of the hidden size, where no key states the intermediate
    heads: Literal["stated", "falcon", "multi_query"] = "stated"
    cache: Literal["", "mla", "expanded"] = ""  # "": a latent where config.json states its rank
    window: Literal["", "all", "pattern"] = ""
    linear: bool = False
    state: Literal["", "all", "both"] = ""  # layers that keep a state: all, or beside attention
    attentions: int = 1  # in each layer, every one with a cache of its own
    experts: ExpertKeys | None = None


def find_architecture(name: str) -> Architecture:
    """Find a row; for an unknown name return that of a Llama under that name."""
    return _table().get(name) or Architecture(name=name, source="", fields=_default_fields())


def is_native(name: str) -> bool:
    """Whether engines bring the code for it, so that none of the model's own is needed."""
    return name in _table()


@cache
def _table() -> Mapping[str, Architecture]:
    table = _document()
    rows = {**table["architectures"], **table["readings"]}
    return {
        name: Architecture(
            name=name,
            source=row["source"],
            fields=_default_fields()
            | {word: tuple(keys) for word, keys in row.get("fields", {}).items()},
            defaults=MappingProxyType(row.get("defaults", {})),
            intermediate_multiple=row.get("intermediate_multiple", 0),
            heads=row.get("heads", "stated"),
            cache=row.get("cache", ""),
            window=row.get("window", ""),
            linear=row.get("linear", False),
            state=row.get("state", ""),
            attentions=row.get("attentions", 1),
            experts=_expert_keys(row["experts"]) if "experts" in row else None,
        )
        for name, row in rows.items()
    }


def _expert_keys(row: Mapping[str, list[str]]) -> ExpertKeys:
    return ExpertKeys(**{word: tuple(keys) for word, keys in row.items()})


@cache
def _default_fields() -> dict[str, tuple[str, ...]]:
    fields = _document()["fields"]
    return {word: tuple(keys) for word, keys in fields.items()}


@cache
def _document() -> Mapping[str, Any]:
    return read_shipped(TABLE)
