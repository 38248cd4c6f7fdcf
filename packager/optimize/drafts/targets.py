"""Models whose hidden states an engine captures, which EAGLE-3, P-EAGLE and DFlash heads read.

The table is `data/eagle3_targets.json`, made by `scripts/engine-architectures --eagle3` from the
engines' own source: a class without that ability ends the server at its start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from packager.catalog.served_architectures import Listing, find_listing
from packager.core.engine_rows import engine_name
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.versions import LOWEST, VersionKey, version_key
from packager.models.architectures.profile import architecture_of, text_config

TABLE = Path(__file__).parent / "data" / "eagle3_targets.json"
MOST_NAMED = 3  # containers in a hint


def check_target(
    kind: str,
    model: ModelFiles,
    container: ContainerFacts,
    containers: tuple[ContainerFacts, ...] = (),
) -> Iterator[Finding]:
    """Refuse a head where this engine version cannot return the model's hidden states.

    Model classes that the version lacks are not checked: it may run transformers' code.
    `containers` are those that may be suggested.
    """
    engine, architecture = container.engine, architecture_of(model.config)
    model_type = str(text_config(model.config).get("model_type", ""))
    if kind not in container.traits.drafts.captures or container.kind == "neuron":
        return
    why = _why_not(container, architecture, model_type)
    if not why:
        return
    who = f"{engine_name(engine)} {container.engine_version}"
    message = f"{who} serves no {kind} head with {architecture}: {why}"
    alike = (container.family, container.kind, engine)
    names = dict.fromkeys(
        one.release or one.engine_version
        for one in containers
        if (one.family, one.kind, one.engine) == alike
        and _why_not(one, architecture, model_type) == ""
    )
    otherwise = "use a draft model, n-grams, or the model's own MTP head where it has one"
    newer = f"use --container-version {' or '.join([*names][:MOST_NAMED])}; else "
    yield Finding("error", "eagle3-model-not-listed", message, (newer if names else "") + otherwise)


def _why_not(container: ContainerFacts, architecture: str, model_type: str) -> str | None:
    """Return why a version does not capture the hidden states of a model; "" where it does.

    None where the version does not have the class.
    """
    engine, version = container.engine, container.engine_version
    key, served = version_key(version), find_listing(engine, architecture)
    if key is None or served is None or not served.has(version):
        return None
    stand_in = _stand_in(engine, key)
    let_through = _let_through(engine, stand_in)
    if let_through and not any(part in model_type for part in let_through):
        return f"its list of types has no {model_type[:40]!r}"
    row = _rows(engine, "architectures").get(architecture)
    has_row = row is not None and row.has(stand_in)
    return "" if has_row else container.traits.drafts.uncaptured


def _let_through(engine: str, version: str) -> tuple[str, ...]:
    """List the parts of types that a version takes; empty where it asks for no type."""
    return tuple(part for part, one in _rows(engine, "model_types").items() if one.has(version))


def _stand_in(engine: str, key: VersionKey) -> str:
    """Return the known version that is used for this one.

    The newest of the same minor release up to it, since patches add no models; else the next.
    """
    versions = _versions(engine)
    same = [
        one for one in versions if _key(one) <= key and _key(one).release[:2] == key.release[:2]
    ]
    later = [one for one in versions if _key(one) >= key]
    return (same[-1:] or later[:1] or versions[-1:])[0]


def _versions(engine: str) -> list[str]:
    versions: list[str] = _table()[engine]["versions"]
    return versions


def _key(version: str) -> VersionKey:
    return version_key(version) or LOWEST


@cache
def _rows(engine: str, name: str) -> Mapping[str, Listing]:
    rows: Mapping[str, Any] = _table()[engine][name]
    return {one: Listing("", tuple(map(tuple, spans))) for one, spans in rows.items()}


@cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(TABLE.read_bytes())
    return table
