"""LoRA adapters in engines: what a version reads, from `data/adapters.toml`, and its options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.adapters import ServedAdapter
from packager.core.share import read_shipped
from packager.core.traits import AdapterTraits
from packager.core.versions import is_before, is_within

TABLE = Path(__file__).parent / "data" / "adapters.toml"


def adapter_traits(engine: str, version: str) -> AdapterTraits | None:
    """Return how a version serves adapters; None for engines and versions that do not."""
    row = _table().get(engine)
    if row is None or engine == "special" or is_before(version, row["least"]):
        return None
    honours = {one["what"] for one in row["honours"] if _is_of(version, one)}
    limits = [one["tokens"] for one in row.get("most_vocabulary", ()) if _is_of(version, one)]
    heads = row["heads"]
    late = _until(version, row.get("late", {}))
    late_heads = _until(version, row.get("late_heads", {}))
    return AdapterTraits(
        layout=row["layout"],
        ranks=tuple(row["ranks"]),
        slots=row["slots"],
        base_takes_slot=row.get("base_takes_slot", False),
        honours=frozenset(honours),
        refused=tuple(_table()["special"].items()),
        without=frozenset(row["without"]) | late,
        heads=None if heads == "all" else frozenset(heads) - late_heads,
        stacked=frozenset(row["stacked"]),
        needs=tuple(map(tuple, row.get("needs", ()))),
        modules=frozenset(row.get("modules", ())),
        split=frozenset(row.get("split", ())),
        most_vocabulary=limits[0] if limits else 0,
        wraps_all=row["wraps"] == "all",
        base_answers=row["silent"],
        answers_unknown=row["unknown_name"] == "base",
        runtime_variable=row.get("runtime_variable", ""),
        always_runtime=row.get("always_runtime", False),
        stops_compiling=frozenset(row["stops_compiling"]),
        no_experts=frozenset(
            one["kind"] for one in row.get("no_experts", ()) if _is_of(version, one)
        ),
    )


def _until(version: str, since: Mapping[str, list[str]]) -> frozenset[str]:
    """Return the architectures that a version is too old for; `since` has them by version."""
    return frozenset(
        one for least, names in since.items() if is_before(version, least) for one in names
    )


def slot_rank(traits: AdapterTraits, rank: int) -> int:
    """Return the rank of slots that hold matrices of this one; 0 where none is large enough."""
    return next((one for one in traits.ranks if one >= rank), 0) if traits.ranks else rank


def adapter_options(
    traits: AdapterTraits,
    adapters: Sequence[ServedAdapter],
    *,
    slots: int,
    rank: int,
    served_name: str,
) -> dict[str, str]:
    """Return the engine's options for adapters, by the names of its own parser."""
    places = {one.name: one.directory for one in adapters}
    if traits.layout == "variable":
        return {"lora-adapters": ",".join(f"{name}={place}" for name, place in places.items())}
    if traits.layout == "paths":
        held = slots + 1 if traits.base_takes_slot else slots
        options = {
            "enable-lora": "true",
            "max-loras-per-batch": str(held),
            "max-lora-rank": str(rank),
            "max-loaded-loras": str(max(held, len(places) + 1)),
        }
        words = [f"{name}={place}" for name, place in places.items()]
        return options | ({"lora-paths": _json(words)} if words else {})
    options = {"enable-lora": "true", "max-loras": str(slots), "max-lora-rank": str(rank)}
    if len(places) > slots:  # those that wait are kept in the host's memory, and read once
        options["max-cpu-loras"] = str(len(places))
    if traits.layout == "directory" or not places:
        return options
    modules = [
        {"name": name, "path": place, "base_model_name": served_name}
        for name, place in places.items()
    ]
    return options | {"lora-modules": _json(modules)}


# Options that `adapter_options` sets, whatever the engine: a request for adapters owns them.
OWNED = ("lora-modules", "lora-paths", "lora-adapters", "enable-lora")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _is_of(version: str, row: Mapping[str, Any]) -> bool:
    return is_within(version, row.get("since", ""), row.get("before", ""))


@cache
def _table() -> Mapping[str, Any]:
    return read_shipped(TABLE)
