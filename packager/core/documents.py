"""Documents that somebody else wrote: strict, bounded JSON and TOML, and typed access to fields.

Registries, hubs, stores, layouts, models and users' files all come through here.  A value of the
wrong type raises `NotStrict`, which the caller turns into a refusal that names the document.
"""

from __future__ import annotations

import tomllib
from typing import Any, TypeVar

from artifact_cache.strict_json import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_VALUES,
    NotStrict,
    parse_first,
    parse_json,
    parse_object,
    shorten,
)

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_TOML_BYTES",
    "MAX_VALUES",
    "NotStrict",
    "field",
    "parse_first",
    "parse_json",
    "parse_object",
    "parse_toml",
    "shorten",
]

MAX_TOML_BYTES = 1024 * 1024
MAX_DOTS = 200  # in one line; tomllib takes time and memory in the square of a dotted key's parts

_Value = TypeVar("_Value")


def parse_toml(data: bytes, *, max_bytes: int = MAX_TOML_BYTES) -> dict[str, Any]:
    """Parse a TOML document; raise `NotStrict` with a reason that fits into a sentence."""
    if len(data) > max_bytes:
        raise NotStrict(f"it has {len(data)} bytes, more than {max_bytes}")
    if any(line.count(b".") > MAX_DOTS for line in data.split(b"\n")):
        raise NotStrict(f"a line in it has more than {MAX_DOTS} dots")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotStrict(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise NotStrict("it is nested too deeply") from None
    except ValueError as error:  # tomllib's own, and numbers that are too long
        raise NotStrict(f"it is not TOML: {shorten(str(error), 160)}") from None


def field(document: object, name: str, kind: type[_Value], where: str = "") -> _Value:
    """Return `document[name]`, which must be there and of this type; `where` names the document.

    A `bool` is no `int`: JSON's true is not the number 1.
    """
    if not isinstance(document, dict):
        raise NotStrict(f"{where or 'it'} is not an object")
    value = document.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        found = "is missing" if name not in document else f"is {shorten(value)}"
        raise NotStrict(f"{where + '.' if where else ''}{name} {found}, expected {kind.__name__}")
    return value
