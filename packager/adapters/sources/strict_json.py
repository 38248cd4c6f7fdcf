"""JSON from strangers: one meaning, bounded, or refused.

A key that stands twice is refused because two readers may keep different
ones.  `Infinity` and `NaN` are let through: released configurations hold them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

MAX_OBJECTS = 2_000_000


class NotStrict(ValueError):
    """The bytes are not JSON, or mean different things to different readers."""


def parse_json(data: bytes, *, max_objects: int = MAX_OBJECTS) -> Any:
    """Parse strictly; raise `NotStrict` with a reason that fits into a sentence."""
    objects = 0

    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal objects
        objects += 1
        if objects > max_objects:
            raise NotStrict(f"it holds more than {max_objects} objects")
        made = dict(pairs)
        if len(made) != len(pairs):
            raise NotStrict(f"the key {shorten(_first_repeated(pairs))} stands twice")
        return made

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise NotStrict(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise NotStrict(f"it is not JSON at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise NotStrict("it is nested too deeply") from None
    except NotStrict:
        raise
    except ValueError:
        raise NotStrict("a number in it is too long") from None


def parse_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object whose strings can all be written again as UTF-8."""
    value = parse_json(data)
    if not isinstance(value, dict):
        raise NotStrict("it is not a JSON object")
    if b"\\u" not in data:  # only an escape can write half of a pair
        return value
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise NotStrict("a string in it is half of a surrogate pair") from None
    return value


def shorten(value: object, limit: int = 80) -> str:
    """Quote a stranger's value for a message: printable, and never a screenful."""
    quoted = repr(value[: limit * 2] if isinstance(value, str) else value)
    return quoted if len(quoted) <= limit else f"{quoted[:limit]}…"


def _first_repeated(pairs: Sequence[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return ""
