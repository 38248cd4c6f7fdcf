"""Engines that serve the MTP head of each model, and the tensors of such a head.

The table is `packager/optimize/drafts/data/mtp_engines.toml`, read from the engines' own source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packager.core.facts import ContainerFacts
from packager.core.share import read_shipped
from packager.core.versions import LOWEST, version_key

TABLE = Path(__file__).parent / "data" / "mtp_engines.toml"
MTP_SINCE = "0.11.0"  # vLLM's one name for all of them; before, each kind has its own


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModels:
    """Models whose MTP head an engine serves."""

    models: tuple[str, ...]  # model types or architectures
    since: str  # version of the engine
    method: str = ""  # vLLM's name of this kind of head
    before_mtp: str = ""  # name of the method in vLLM before 0.11; "" where that does not serve it
    uses: int = 0  # layers that the engine takes; 0: all


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadParts:
    """Tensors that every head of some models has, by the end of their names."""

    each: Literal["layer", "head"]  # whether every layer has one of each, or the head has
    tensors: tuple[str, ...]
    joins: str  # the matrix that joins an embedding and a hidden state


@dataclass(frozen=True, slots=True)
class _Parts:
    models: frozenset[str]
    parts: HeadParts


def find_served(engine: str, config: Mapping[str, Any]) -> ServedModels | None:
    """Return the row that a model's config.json falls under, the oldest version first."""
    names = model_names(config)
    rows = (row for row in served_models().get(engine, ()) if not names.isdisjoint(row.models))
    return min(rows, key=lambda row: version_key(row.since) or LOWEST, default=None)


def find_parts(config: Mapping[str, Any]) -> HeadParts | None:
    """Return the parts of this model's head; None where the table lacks the model."""
    stated = config.get("model_type")
    if not isinstance(stated, str):
        return None
    return next((row.parts for row in _parts() if stated in row.models), None)


def serves(row: ServedModels, engine_version: str) -> bool:
    """Return whether a version supports a row's feature; an unknown version does."""
    found, since = version_key(engine_version), version_key(row.since)
    return found is None or since is None or found >= since


def is_mtp_method(method: str) -> bool:
    """Return whether vLLM's method name means MTP heads of some kind."""
    rows = [row for rows in served_models().values() for row in rows]
    return method in {"mtp", *(row.method for row in rows), *(row.before_mtp for row in rows)} - {
        ""
    }


def mtp_method(config: Mapping[str, Any], container: ContainerFacts) -> str:
    """Return the method's name in a version of vLLM: `mtp`, or the kind of head before 0.11.

    "" for engines without method names.
    """
    if not container.traits.drafts.names_mtp_kinds:
        return ""
    found, since = version_key(container.engine_version), version_key(MTP_SINCE)
    row = find_served(container.engine, config)
    if found is None or since is None or found >= since or row is None:
        return "mtp"
    return row.before_mtp or "mtp"


def model_names(config: Mapping[str, Any]) -> frozenset[str]:
    """Return the names by which engines recognize a model: its type and its architecture."""
    listed = config.get("architectures")
    first = listed[0] if isinstance(listed, list) and listed else None
    return frozenset(one for one in (config.get("model_type"), first) if isinstance(one, str))


@cache
def served_models() -> Mapping[str, tuple[ServedModels, ...]]:
    """Return the table by engine: those that serve such heads at all."""
    document = read_shipped(TABLE)
    return {
        engine: tuple(
            ServedModels(
                models=tuple(row["models"]),
                since=row["since"],
                method=row.get("method", ""),
                before_mtp=row.get("before_mtp", ""),
                uses=row.get("uses", 0),
            )
            for row in rows
        )
        for engine, rows in document.items()
        if engine not in ("date", "parts")
    }


@cache
def _parts() -> tuple[_Parts, ...]:
    document = read_shipped(TABLE)
    return tuple(
        _Parts(
            frozenset(row["models"]),
            HeadParts(each=row["each"], tensors=tuple(row["tensors"]), joins=row["joins"]),
        )
        for row in document["parts"]
    )
