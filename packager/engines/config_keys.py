"""Keys of config.json that an engine's version reads and transformers 5 writes otherwise.

A model that was saved anew lacks keys which its publisher wrote, or has other words in them.  The
engine ends when it starts, or computes something else: `data/engines/config_keys.toml` has a row
for each such key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from packager.core.documents import parse_object
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.share import read_shipped
from packager.core.versions import is_within
from packager.engines.schema import ENGINES
from packager.models.architectures.profile import architecture_of

TABLE = ENGINES / "config_keys.toml"
OVERRIDES = ("hf-overrides", "json-model-override-args")  # options that say what config.json lacks
ENDS = "ends when it starts"
USUAL_BASE = 10_000.0  # of rotary positions, where neither config.json nor a class states one

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One key; `config_keys.toml` says what each field is."""

    engine: str
    architectures: tuple[str, ...]
    key: str
    source: str
    since: str = ""
    before: str = ""
    value: str = ""
    value_of: str = ""
    numbers: bool = False
    words: tuple[str, ...] = ()
    head: bool = False
    does: str = ENDS


def check_config_keys(
    container: ContainerFacts, model: ModelFiles, options: Mapping[str, str]
) -> Iterator[Finding]:
    """Find keys without which the engine's version does not serve the model.

    `options` are by the engine's own names.
    """
    engine, version = container.engine, container.engine_version
    who = container.traits.who or f"{engine} {version}"
    config = {**model.config, **_overridden(options)}
    name = architecture_of(config)
    lacking = [
        row
        for row in _rows()
        if row.engine == engine
        and name in row.architectures
        and is_within(version, row.since, row.before)
        and _lacks(row, config, model)
    ]
    for does in dict.fromkeys(row.does for row in lacking):
        rows = [row for row in lacking if row.does == does]
        keys = ", ".join(repr(row.key) for row in rows)
        stated = [f"{row.key} = {value}" for row in rows if (value := _value(row, config))]
        yield Finding(
            "error",
            "config-keys",
            f"{who} reads {keys} of config.json, which transformers 5 writes otherwise: it {does}",
            "write it as the model was published" + (f": {', '.join(stated)}" if stated else ""),
        )
    yield from _check_rotary(who, engine, version, config)


def _check_rotary(who: str, engine: str, version: str, config: Config) -> Iterator[Finding]:
    """Refuse positions stated in `rope_parameters` alone where an engine knows no such key."""
    before = _table()["rotary"].get(engine)
    text = config.get("text_config")
    part = text if isinstance(text, Mapping) else config
    stated = part.get("rope_parameters")
    if before is None or not isinstance(stated, Mapping) or not is_within(version, "", before):
        return
    base, kind = stated.get("rope_theta"), stated.get("rope_type", "default")
    usual = _table()["base"].get(str(part.get("model_type")), USUAL_BASE)
    missing = []
    if base not in (None, usual) and part.get("rope_theta") is None:
        missing.append(f"rope_theta = {json.dumps(base)}")
    if isinstance(kind, str) and kind != "default" and part.get("rope_scaling") is None:
        missing.append(f"rope_scaling, of type {kind[:40]!r}")
    if missing:
        message = (
            f"{who} does not know rope_parameters of config.json, which transformers 5 writes, "
            f"and would compute with other positions: {' and '.join(missing)}"
        )
        hint = "write them beside it as earlier releases did, or take a newer container version"
        yield Finding("error", "config-keys", message, hint)


def _lacks(row: _Row, config: Config, model: ModelFiles) -> bool:
    found = _at(config, row.key)
    part, _, _ = row.key.rpartition(".")
    if part and not isinstance(_at(config, part), Mapping):
        return False
    if row.head:  # tied at the top alone, where the engine does not look
        has_head = any(tensor.name.endswith("lm_head.weight") for tensor in model.tensors)
        return config.get("tie_word_embeddings") is True and found is not True and not has_head
    if row.value_of and row.value and _at(config, row.value_of) == json.loads(row.value):
        return False  # what the engine takes of itself
    if row.words:
        return isinstance(found, list) and not set(row.words).isdisjoint(map(str, found))
    if row.numbers:
        return row.key not in config or isinstance(found, int)
    return found is None


def _value(row: _Row, config: Config) -> str:
    """Return what was published under a key; "" where it is the model's own."""
    found = _at(config, row.value_of) if row.value_of else None
    return row.value if found is None else json.dumps(found)


def _at(config: Config, key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _overridden(options: Mapping[str, str]) -> dict[str, Any]:
    """Return what options say in place of config.json; unsound JSON is refused elsewhere."""
    found: dict[str, Any] = {}
    for name in OVERRIDES:
        try:
            found |= parse_object(options[name].encode()) if options.get(name) else {}
        except ValueError:
            continue
    return found


@cache
def _rows() -> tuple[_Row, ...]:
    lists = ("architectures", "words")
    return tuple(
        _Row(**{**row, **{key: tuple(row[key]) for key in lists if key in row}})
        for row in _table()["row"]
    )


@cache
def _table() -> dict[str, Any]:
    return read_shipped(TABLE)
