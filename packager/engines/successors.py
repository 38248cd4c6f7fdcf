"""Options that a version of an engine lacks and another one has, with their replacements.

When an option came and went is read from the shipped tables of all versions; what took its place is
in `data/successors.toml`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.share import read_shipped
from packager.core.suggestions import guess
from packager.core.versions import LOWEST, is_before, version_key
from packager.engines.schema import ENGINES, EngineSchema, shipped_versions

OPTION = re.compile(r"--([a-z][a-z0-9-]*)", re.ASCII)
SUCCESSORS = Path(__file__).parent / "data" / "successors.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """An option that other versions have: what to do, and the name that takes its value."""

    hint: str
    to: str = ""  # "": no option takes the value as it is


def find_missing(schema: EngineSchema, name: str, version: str = "") -> Missing | None:
    """Find what became of an option that this version lacks; None where no version has it.

    `version` is the engine's own, where the schema is that of the nearest known one.
    """
    wanted = _as_listed(schema.engine, name)
    having = _history(schema.engine).get(wanted) or _history(schema.engine).get(
        wanted.removeprefix("no-"), ()
    )
    version = version or schema.version
    if not having or schema.find(wanted) is not None or version in having:
        return None
    before = [one for one in having if is_before(one, version)]
    if not before:
        return Missing(hint=f"it came after {version}, with {having[0]}: leave it out")
    row, since = _rows(schema.engine).get(wanted, {}), f"removed after {before[-1]}: "
    to, hint = row.get("to", ""), row.get("hint", "leave it out")
    if to and not is_before(version, row.get("since", "0")) and _has_all(schema, f"--{to}"):
        return Missing(hint=f"{since}write --{to}", to=to)
    return Missing(hint=since + (hint if _has_all(schema, hint) else "leave it out"))


def hint_for(schema: EngineSchema, name: str, version: str = "") -> str:
    """Return what to do about an option that this version lacks.

    A name that any version has is never reported as a misspelling.
    """
    missing = find_missing(schema, name, version)
    if missing is not None:
        return missing.hint
    return guess(_as_listed(schema.engine, name), schema.options, "leave it out")


def _as_listed(engine: str, name: str) -> str:
    """Write a name as the tables do: of TGI a variable, of others an option."""
    return name.upper().replace("-", "_") if engine == "tgi" else name.lower().replace("_", "-")


def _has_all(schema: EngineSchema, hint: str) -> bool:
    """Report whether a version has all options that a hint names."""
    return all(schema.find(name) is not None for name in OPTION.findall(hint))


@cache
def _rows(engine: str) -> Mapping[str, Mapping[str, str]]:
    rows: Mapping[str, Mapping[str, str]] = (
        read_shipped(SUCCESSORS).get(engine, {}).get("options", {})
    )
    return rows


@cache
def _history(engine: str) -> Mapping[str, tuple[str, ...]]:
    """Return the versions that have each long name, oldest first."""
    found: dict[str, list[str]] = {}
    for version in sorted(shipped_versions(engine), key=lambda one: version_key(one) or LOWEST):
        document: dict[str, Any] = json.loads((ENGINES / f"{engine}-{version}.json").read_bytes())
        for name, row in document["options"].items():
            for one in (name, *row.get("aliases", ()), *row.get("inverses", ())):
                found.setdefault(one, []).append(version)
    return {name: tuple(versions) for name, versions in found.items()}
