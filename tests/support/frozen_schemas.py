"""JSON schemas of documents: how they are made, compared, and filled in.

A schema is stored as pydantic makes it, without words for people, and compared with every `$ref` in
place: names of classes and modules may change, what a reader takes may not.  Of a document that
has no model, the schema is the shape of an example; of a database it is SQLite's own text.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

WORDS = ("title", "description", "examples")
VERSION_FIELDS = ("schema", "schema_version", "version", "protocol", "order")
SAMPLES = (
    "text",
    "a" * 64,
    "a" * 32,
    "sha256:" + "a" * 64,
    "/a",
    "13.0",
    "YQ==",
    "0644",
    "image-0",
    "1x1024x1024",
)


def without_words(schema: Any) -> Any:
    """Return a JSON schema without titles and descriptions; fields of such names stay."""
    if isinstance(schema, list):
        return [without_words(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for name, value in schema.items():
        if name in ("properties", "$defs"):
            kept[name] = {field: without_words(one) for field, one in value.items()}
        elif name in ("const", "enum", "default"):
            kept[name] = value
        elif name not in WORDS:
            kept[name] = without_words(value)
    return kept


def inlined(schema: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    """Return a schema with each `$ref` replaced by what it stands for."""
    if isinstance(schema, list):
        return [inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        target = known[schema["$ref"].removeprefix("#/$defs/")]
        beside = {name: value for name, value in schema.items() if name != "$ref"}
        return inlined({**target, **beside}, known)
    kept = {name: value for name, value in schema.items() if name not in ("$defs", "discriminator")}
    return {
        name: value if name in ("const", "enum", "default") else inlined(value, known)
        for name, value in kept.items()
    }


def shape_of(document: Any, name: str = "") -> dict[str, Any]:
    """Return the schema of exactly such documents: fields, types, and the version's value."""
    match document:
        case dict():
            fields = {key: shape_of(value, key) for key, value in sorted(document.items())}
            return {"type": "object", "properties": fields, "required": sorted(fields)}
        case list():
            shapes: list[dict[str, Any]] = []
            for one in document:
                if (shape := shape_of(one)) not in shapes:
                    shapes.append(shape)
            items = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
            return {"type": "array", "items": items if shapes else {}}
        case _ if name in VERSION_FIELDS:
            return {"const": document}
        case None:
            return {"type": "null"}
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case float():
            return {"type": "number"}
    return {"type": "string"}


def schema_of_database(path: Path) -> dict[str, Any]:
    """Return a database's version, and its tables and indexes as SQLite keeps them."""
    with closing(sqlite3.connect(path)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        rows = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
    return {"user_version": version, "sql": {name: _clauses(sql) for name, sql in rows}}


def dump_of_database(path: Path) -> bytes:
    """Return a database as SQL, its version too."""
    with closing(sqlite3.connect(path)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        lines = [*database.iterdump(), f"PRAGMA user_version={version};"]
    return ("\n".join(lines) + "\n").encode()


def restore_database(dump: bytes, path: Path) -> None:
    """Make a database of what `dump_of_database` returned."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(dump.decode())


def changes_of(frozen: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return in words what has changed since a schema was frozen, each once."""
    return list(dict.fromkeys(differences(inlined(frozen), inlined(now))))


def differences(frozen: Any, now: Any, place: str = "") -> Iterator[str]:
    """Yield in words what a schema has that the frozen one has not, and the reverse."""
    if not (isinstance(frozen, dict) and isinstance(now, dict)):
        if frozen != now:
            yield f"{place or 'it'} was {_short(frozen)}, is {_short(now)}"
        return
    before, after = frozen.get("properties", {}), now.get("properties", {})
    for name in sorted({*before, *after}):
        field = f"{place}.{name}".lstrip(".")
        if name not in before:
            yield f"field {field!r} is new"
        elif name not in after:
            yield f"field {field!r} is gone"
        else:
            yield from differences(before[name], after[name], field)
    was, is_now = set(frozen.get("required", ())), set(now.get("required", ()))
    for name in sorted((was ^ is_now) & {*before} & {*after}):
        words = "required" if name in is_now else "optional"
        yield f"field {f'{place}.{name}'.lstrip('.')!r} is {words} now"
    for name in sorted({*frozen, *now} - {"properties", "required"}):
        old, new = frozen.get(name), now.get(name)
        if name == "items":
            yield from differences(old, new, f"{place}[]")
        elif name == "sql":
            yield from _table_differences(old, new)
        elif name in ("anyOf", "oneOf") and _same_length(old, new):
            for one, other in zip(old, new, strict=True):
                yield from differences(one, other, place)
        elif old != new:
            yield f"{place or 'it'}: {name} was {_short(old)}, is {_short(new)}"


def _table_differences(
    frozen: Mapping[str, list[str]], now: Mapping[str, list[str]]
) -> Iterator[str]:
    for table in sorted({*frozen, *now}):
        before, after = frozen.get(table, []), now.get(table, [])
        yield from (f"{table}: {one!r} is gone" for one in before if one not in after)
        yield from (f"{table}: {one!r} is new" for one in after if one not in before)
        if before != after and sorted(before) == sorted(after):
            yield f"{table}: its columns are in another order"


def filled(schema: dict[str, Any]) -> Any:
    """Return a document of an inlined schema with every field, as small as it may be."""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for name in ("anyOf", "oneOf", "allOf"):
        if name in schema:
            return filled(next(one for one in schema[name] if one.get("type") != "null"))
    match schema.get("type"):
        case "object":
            return _filled_object(schema)
        case "array":
            listed = schema.get("prefixItems") or [schema.get("items", {})]
            return [filled(one) for one in listed]
        case "integer":
            return int(max(1, schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1))
        case "number":
            return float(max(0.5, schema.get("minimum", 0), schema.get("exclusiveMinimum", 0)))
        case "boolean":
            return True
        case "null":
            return None
    return _filled_text(schema)


def _filled_object(schema: dict[str, Any]) -> dict[str, Any]:
    if "properties" in schema:
        return {name: filled(one) for name, one in schema["properties"].items()}
    for pattern, value in schema.get("patternProperties", {}).items():
        return {_filled_text({"pattern": pattern}): filled(value)}
    value = schema.get("additionalProperties", {})
    return {filled(schema.get("propertyNames", {})): filled(value if value is not True else {})}


def _filled_text(schema: dict[str, Any]) -> str:
    if schema.get("format") == "date":
        return "2026-11-22"
    if schema.get("format") == "date-time":
        return "2026-11-22T00:00:00Z"
    pattern = schema.get("pattern", "")
    return next(one for one in SAMPLES if re.search(pattern, one))


def _same_length(one: Any, other: Any) -> bool:
    return isinstance(one, list) and isinstance(other, list) and len(one) == len(other)


def _clauses(sql: str) -> list[str]:
    """Return a statement as its beginning, its columns and constraints, and its end."""
    text = " ".join(re.sub(r"--[^\n]*", "", sql).split())
    clauses, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if (letter, depth) in (("(", 1), (",", 1), (")", 0)):
            clauses.append("")
        else:
            clauses[-1] += letter
    return [one.strip() for one in clauses if one.strip()]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
