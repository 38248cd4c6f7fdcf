"""Untrusted documents: strict, bounded JSON and TOML, and typed access to fields.

Registries, hubs, stores, layouts, models and users' files all come through here.  A value of the
wrong type raises `NotStrict`, which the caller turns into a refusal that names the document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from artifact_cache.strict_json import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_VALUES,
    NotStrict,
    check_nesting,
    parse_finite,
    parse_first,
    parse_json,
    parse_object,
    shorten,
    strict_decoder,
)
from packager.core.validation import first_fault

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_TOML_BYTES",
    "MAX_VALUES",
    "NotStrict",
    "field",
    "parse_first",
    "parse_json",
    "parse_model",
    "parse_object",
    "parse_toml",
    "shorten",
    "strict_decoder",
]

MAX_TOML_BYTES = 1024 * 1024

# tomllib takes time and memory in the square of a dotted key's parts (12 s and 1.6 GB for one of
# 40 kB), and for every line in the parts of the table it is in.  This is about a second.
MAX_KEY_WORK = 20_000_000

_Value = TypeVar("_Value")
_Model = TypeVar("_Model", bound="BaseModel")


def parse_toml(data: bytes, *, max_bytes: int = MAX_TOML_BYTES) -> dict[str, Any]:
    """Parse a TOML document; raise `NotStrict` with a reason that fits into a sentence.

    Depth and numbers are limited as in JSON; `inf` and `nan` are refused.
    """
    if len(data) > max_bytes:
        raise NotStrict(f"it has {len(data)} bytes, more than {max_bytes}")
    dots = [line.count(b".") for line in data.split(b"\n")]
    if sum(count * count for count in dots) + max(dots) * len(dots) > MAX_KEY_WORK:
        raise NotStrict("its dotted keys are too long")
    import tomllib  # 2 ms that most commands do not need

    try:
        document = tomllib.loads(data.decode("utf-8"), parse_float=parse_finite)
    except UnicodeDecodeError as error:
        raise NotStrict(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise NotStrict("it is nested too deeply") from None
    except NotStrict:
        raise
    except ValueError as error:  # tomllib's own, and numbers that are too long
        raise NotStrict(f"it is not TOML: {shorten(str(error), 160)}") from None
    check_nesting(document)
    return document


def parse_model(
    model: type[_Model],
    data: bytes,
    *,
    max_bytes: int = MAX_BYTES,
    allow_infinity: bool = False,
) -> _Model:
    """Parse JSON strictly and validate it; raise `NotStrict` with the first fault."""
    from pydantic import ValidationError

    parse_object(data, max_bytes=max_bytes, allow_infinity=allow_infinity)
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise NotStrict(first_fault(error)) from None


def field(document: object, name: str, kind: type[_Value], where: str = "") -> _Value:
    """Return `document[name]`, which must be there and of this type; `where` names the document.

    A `bool` is not an `int`: JSON's true is not the number 1.
    """
    if not isinstance(document, dict):
        raise NotStrict(f"{where or 'it'} is not an object")
    value = document.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        found = "is missing" if name not in document else f"is {shorten(value)}"
        raise NotStrict(f"{where + '.' if where else ''}{name} {found}, expected {kind.__name__}")
    return value
