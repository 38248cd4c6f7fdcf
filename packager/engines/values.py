"""Values that an engine reads after parsing: names it looks up later, and JSON for its classes.

A parser takes any text for `tool-call-parser` and any JSON for `compilation-config`; the engine
refuses what it does not know when it starts.  The lists and classes come from the engine's own
source, by `scripts/engine-options`, and stand in the same JSON as the options.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packager.core.documents import NotStrict, parse_json, shorten
from packager.core.findings import Finding
from packager.core.suggestions import guess

MOST_NAMED = 12  # of the names that a hint lists
# What a lax class reads as a number or a truth value, beside those of JSON: pydantic's own rules.
LAX = {
    "int": re.compile(r"[-+]?\d+(\.0*)?", re.ASCII),
    "float": re.compile(
        r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?(inf|infinity|nan)",
        re.ASCII | re.IGNORECASE,
    ),
    "bool": re.compile(r"0|1|0\.0|1\.0|off|on|[fty]|no?|yes|true|false", re.ASCII | re.IGNORECASE),
}
LONGEST_SPELLED = 60  # characters of a refused value


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of a number; `above` and `below` are exclusive."""

    min: float | None = None
    max: float | None = None
    above: float | None = None
    below: float | None = None

    def refusal(self, number: float) -> str:
        """Return the bound that a number violates; "" when it is within."""
        if self.min is not None and number < self.min:
            return f"at least {self.min:g}"
        if self.above is not None and number <= self.above:
            return f"above {self.above:g}"
        if self.max is not None and number > self.max:
            return f"at most {self.max:g}"
        if self.below is not None and number >= self.below:
            return f"below {self.below:g}"
        return ""


UNBOUNDED = Bounds()


def read_bounds(row: Mapping[str, Any]) -> Bounds:
    """Read the bounds of an option or a field."""
    given = {key: row[key] for key in ("min", "max", "above", "below") if key in row}
    return Bounds(**given) if given else UNBOUNDED


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigField:
    """One field of a configuration class. `null` is always taken where `optional` is set."""

    # `int`, `float`, `bool`, `text`, `list`, `list[int]`, `object`, `any`, or several: `int|text`
    type: str
    choices: tuple[str | int | float | bool, ...] = ()
    folded: bool = False  # names of `choices` may be spelled in any case
    optional: bool = False
    config: EngineConfig | None = None  # of an `object`
    bounds: Bounds = field(default_factory=lambda: UNBOUNDED)  # of a number
    values: tuple[str, ...] = ()  # names that are looked up when the engine starts
    opened_by: str = ""  # the key beside it that adds to `values`


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """A class of the engine that a JSON object is turned into."""

    name: str
    fields: Mapping[str, ConfigField] = field(default_factory=dict)
    closed: bool = True  # another key is refused, or dropped; else it is handed on
    lax: bool = False  # text that spells a number or a truth value is parsed as one


def read_configs(
    rows: Mapping[str, Any], lists: Mapping[str, list[Any]] | None = None
) -> Mapping[str, EngineConfig]:
    """Build the classes of a schema's `configs`; a class may name others, not itself.

    A field's row may be its type alone, with `?` where null is taken: `"int?"`.
    """
    built: dict[str, EngineConfig] = {}
    for name in rows:
        _build(name, rows, lists or {}, built)
    return built


def read_list(listed: object, lists: Mapping[str, list[Any]]) -> tuple[Any, ...]:
    """Read a list of names, or the name of one that several rows share."""
    return tuple(lists[listed] if isinstance(listed, str) else listed)  # type: ignore[arg-type]


def is_listed(
    value: object, listed: Collection[object], *, folded: bool = False, lax: bool = False
) -> bool:
    """Check that a value is one of those listed.

    `folded` takes names in any case, `lax` takes 1.0 and true for 1.
    """
    if isinstance(value, str) and folded:
        return value.lower() in {one.lower() for one in listed if isinstance(one, str)}
    return any(value == one and (lax or type(value) is type(one)) for one in listed)


def check_known(
    who: str, spelled: str, value: str, values: Collection[str], *, what: str = ""
) -> Iterator[Finding]:
    """Find a name that is none of those which the engine looks up when it starts."""
    if value in values:
        return
    hint = guess(value, values, f"it takes {', '.join(sorted(values)[:MOST_NAMED])}")
    message = f"{who} has no {what or spelled} {shorten(value, 60)}"
    yield Finding("error", "value-refused", message, hint)


def check_config(who: str, spelled: str, text: str, config: EngineConfig) -> Iterator[Finding]:
    """Find what a configuration class of the engine refuses in the JSON of an option."""
    try:
        value = parse_json(text.encode())
    except NotStrict:
        return  # the type of the option is checked elsewhere
    yield from _check_object(who, spelled, value, config)


def _check_object(who: str, where: str, value: object, config: EngineConfig) -> Iterator[Finding]:
    if not isinstance(value, dict):
        message = f"{who} wants a JSON object for {where!r}, not {_spelled(value)}"
        yield Finding("error", "value-refused", message, 'write it as {"KEY": VALUE}')
        return
    for key, inner in value.items():
        row = config.fields.get(key)
        if row is not None:
            spelled = f"{where}.{key}"
            yield from _check_field(who, spelled, inner, row, lax=config.lax)
            if row.values and isinstance(inner, str) and inner and row.opened_by not in value:
                yield from check_known(who, spelled, inner, row.values)
        elif config.closed:
            message = f"{who} has no {shorten(key, 60)} in {where!r} ({config.name})"
            hint = guess(key, config.fields, "leave it out")
            yield Finding("error", "key-dropped", message, hint)


def _check_field(
    who: str, where: str, value: object, row: ConfigField, *, lax: bool
) -> Iterator[Finding]:
    if value is None:
        if not row.optional and row.type != "any":
            message = f"{who} refuses null for {where!r}"
            yield Finding("error", "value-refused", message, "leave it out, or give a value")
    elif row.choices:
        if not is_listed(value, row.choices, folded=row.folded, lax=lax):
            spelled = _spelled(value)
            known = ", ".join(json.dumps(one) for one in row.choices[:MOST_NAMED])
            message = f"{who} refuses {spelled} for {where!r}"
            yield Finding("error", "value-refused", message, f"it takes {known}")
    elif not any(_is_a(value, kind, lax=lax) for kind in row.type.split("|")):
        spelled = _spelled(value)
        message = f"{who} refuses {spelled} for {where!r}, which is of type {row.type}"
        yield Finding("error", "value-refused", message, written_as(row.type))
    elif isinstance(value, int | float) and (wanted := row.bounds.refusal(value)):
        message = f"{who} refuses {_spelled(value)} for {where!r}, which must be {wanted}"
        yield Finding("error", "value-refused", message, f"give one that is {wanted}")
    elif row.config is not None and isinstance(value, dict):
        yield from _check_object(who, where, value, row.config)


def written_as(of_type: str) -> str:
    """Return the hint how a value of a type of the option tables is written."""
    return _WRITTEN.get(of_type, f"give a value of type {of_type.replace('|', ' or ')}")


_WHOLE, _YES_NO = "write a whole number", "write true or false"
_WRITTEN = {
    **dict.fromkeys(("int", "uint16", "uint32", "uint64", "counts"), _WHOLE),
    **dict.fromkeys(("flag", "switch", "bool", "loose-bool"), _YES_NO),
    "float": "write a number, such as 0.5",
    "size": "write a whole number, or one such as 4k",
    "binary-size": "write a whole number, or one such as 4Ki",
    "json": 'write JSON, such as {"key": 1}, with quotes around keys and texts',
    "object": 'write an object, such as {"key": 1}',
    "text": "write a text",
    "word": "write one word",
}


def _spelled(value: object) -> str:
    """Return a value as JSON on one short line."""
    text = json.dumps(value)
    return text if len(text) <= LONGEST_SPELLED else f"{text[:LONGEST_SPELLED]}…"


def _is_a(value: object, of_type: str, *, lax: bool) -> bool:
    if lax and of_type in LAX and isinstance(value, str | bool | float):
        return isinstance(value, bool) or LAX[of_type].fullmatch(str(value).strip()) is not None
    if of_type.startswith("list["):
        inner = of_type[5:-1]
        return isinstance(value, list) and all(_is_a(one, inner, lax=lax) for one in value)
    match of_type:
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "float":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool) or (lax and value in (0, 1))
        case "text":
            return isinstance(value, str)
        case "list":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    return True


def _build(
    name: str,
    rows: Mapping[str, Any],
    lists: Mapping[str, list[Any]],
    built: dict[str, EngineConfig],
) -> EngineConfig:
    if name not in built:
        row = rows[name]
        fields = {key: _field(inner, rows, lists, built) for key, inner in row["fields"].items()}
        built[name] = EngineConfig(
            name=name,
            fields=fields,
            closed=row.get("closed", True),
            lax=row.get("lax", False),
        )
    return built[name]


def _field(
    row: str | Mapping[str, Any],
    rows: Mapping[str, Any],
    lists: Mapping[str, list[Any]],
    built: dict[str, EngineConfig],
) -> ConfigField:
    if isinstance(row, str):
        return ConfigField(type=row.removesuffix("?"), optional=row.endswith("?"))
    return ConfigField(
        type=row.get("type", "text"),
        choices=read_list(row.get("choices", ()), lists),
        folded=row.get("folded", False),
        optional=row.get("optional", False),
        config=_build(row["config"], rows, lists, built) if "config" in row else None,
        bounds=read_bounds(row),
        values=read_list(row.get("values", ()), lists),
        opened_by=row.get("opened_by", ""),
    )
