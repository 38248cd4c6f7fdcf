"""What an engine reads behind its parser: names it looks up later, and JSON for its own classes.

A parser takes any text for `tool-call-parser` and any JSON for `compilation-config`; the engine
refuses what it does not know when it starts.  The lists and classes come from the engine's own
source, by `scripts/engine-options`, and stand in the same JSON as the options.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packager.core.documents import NotStrict, parse_json, shorten
from packager.core.findings import Finding
from packager.core.nearness import nearest

MOST_NAMED = 12  # of the names that a hint lists
LONGEST_SPELLED = 60  # characters of a refused value


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigField:
    """One field of a configuration class. `null` is always taken where `optional` is set."""

    type: str  # `int`, `float`, `bool`, `text`, `list`, `object` or `any`
    choices: tuple[str | int | float | bool, ...] = ()
    optional: bool = False
    config: Config | None = None  # of an `object`


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A class of the engine that a JSON object is turned into."""

    name: str
    fields: Mapping[str, ConfigField] = field(default_factory=dict)
    closed: bool = True  # another key is refused; else it is dropped or handed on


def read_configs(rows: Mapping[str, Any]) -> Mapping[str, Config]:
    """Build the classes of a schema's `configs`; a class may name others, not itself."""
    built: dict[str, Config] = {}
    for name in rows:
        _build(name, rows, built)
    return built


def check_known(
    who: str, spelled: str, value: str, values: Collection[str], *, what: str = ""
) -> Iterator[Finding]:
    """Find a name that is none of those which the engine looks up when it starts."""
    if value in values:
        return
    close = nearest(value, values)
    known = ", ".join(sorted(values)[:MOST_NAMED])
    hint = f"did you mean {close!r}?" if close else f"it takes {known}"
    message = f"{who} has no {what or spelled} {shorten(value, 60)}"
    yield Finding("error", "value-refused", message, hint)


def check_config(who: str, spelled: str, text: str, config: Config) -> Iterator[Finding]:
    """Find what a configuration class of the engine refuses in the JSON of an option."""
    try:
        value = parse_json(text.encode())
    except NotStrict:
        return  # the type of the option is checked elsewhere
    yield from _check_object(who, spelled, value, config)


def _check_object(who: str, where: str, value: object, config: Config) -> Iterator[Finding]:
    if not isinstance(value, dict):
        message = f"{who} wants a JSON object for {where!r}, not {_spelled(value)}"
        yield Finding("error", "value-refused", message)
        return
    for key, inner in value.items():
        row = config.fields.get(key)
        if row is not None:
            yield from _check_field(who, f"{where}.{key}", inner, row)
        elif config.closed:
            close = nearest(key, config.fields)
            message = f"{who} has no {shorten(key, 60)} in {where!r} ({config.name})"
            hint = f"did you mean {close!r}?" if close else "leave it out"
            yield Finding("error", "key-dropped", message, hint)


def _check_field(who: str, where: str, value: object, row: ConfigField) -> Iterator[Finding]:
    if value is None:
        if not row.optional:
            yield Finding("error", "value-refused", f"{who} refuses null for {where!r}")
    elif row.choices:
        if not any(value == one and type(value) is type(one) for one in row.choices):
            spelled = _spelled(value)
            known = ", ".join(json.dumps(one) for one in row.choices[:MOST_NAMED])
            message = f"{who} refuses {spelled} for {where!r}"
            yield Finding("error", "value-refused", message, f"it takes {known}")
    elif not _is_a(value, row.type):
        spelled = _spelled(value)
        message = f"{who} refuses {spelled} for {where!r}, which is of type {row.type}"
        yield Finding("error", "value-refused", message)
    elif row.config is not None:
        yield from _check_object(who, where, value, row.config)


def _spelled(value: object) -> str:
    """Spell a value as the JSON it was given as, on one line and never a screenful."""
    text = json.dumps(value)
    return text if len(text) <= LONGEST_SPELLED else f"{text[:LONGEST_SPELLED]}…"


def _is_a(value: object, of_type: str) -> bool:
    match of_type:
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "float":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str)
        case "list":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    return True


def _build(name: str, rows: Mapping[str, Any], built: dict[str, Config]) -> Config:
    if name not in built:
        row = rows[name]
        fields = {key: _field(inner, rows, built) for key, inner in row["fields"].items()}
        built[name] = Config(name=name, fields=fields, closed=row.get("closed", True))
    return built[name]


def _field(
    row: Mapping[str, Any], rows: Mapping[str, Any], built: dict[str, Config]
) -> ConfigField:
    return ConfigField(
        type=row["type"],
        choices=tuple(row.get("choices", ())),
        optional=row.get("optional", False),
        config=_build(row["config"], rows, built) if "config" in row else None,
    )
