"""Request files: text that `packager build --request FILE` takes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packager.core.errors import UsageError
from packager.core.request import YAML_SUFFIXES
from packager.core.text import json_text


def check_request_file(path: Path) -> None:
    """Refuse a name whose ending no request file has."""
    if path.suffix not in (".toml", ".json", *YAML_SUFFIXES):
        raise UsageError(
            f"a request file is TOML, JSON or YAML, and {path.name!r} ends with none of these",
            hint=f"write it to {path.stem}.toml, {path.stem}.json or {path.stem}.yaml",
        )


def request_text(path: Path, fields: Mapping[str, Any], comments: tuple[str, ...]) -> str:
    """Return the fields as JSON, or as YAML or TOML with comments, by the ending of the name."""
    if path.suffix == ".json":
        return json_text(dict(fields)) + "\n"
    lines = [f"# {one}" for one in comments]
    if path.suffix in YAML_SUFFIXES:
        lines += [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    else:
        lines += _toml_lines(fields)
    return "\n".join(lines) + "\n"


def _toml_lines(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield plain values first: in TOML, all that follows a table belongs to it."""
    tables = {name: value for name, value in fields.items() if isinstance(value, Mapping)}
    for name, value in fields.items():
        if name not in tables:
            yield f"{name} = {_value(value)}"
    for name, table in tables.items():
        yield ""
        yield f"[{name}]"
        for key, value in table.items():
            yield f"{_string(str(key))} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _string(str(value))


def _string(text: str) -> str:
    """Return a basic string: JSON's escapes are TOML's."""
    return json.dumps(text)
