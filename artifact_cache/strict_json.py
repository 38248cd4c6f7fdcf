"""Strict, bounded JSON: one meaning for every reader, or a refusal.

Every JSON document that somebody else may have written is read here: by the artifact cache and,
through `packager.core.documents`, by packager.  A key that occurs twice is refused because two
readers may keep different ones; depth, numbers and the count of values are limited because a
short document can otherwise cost gigabytes or end in a `RecursionError` far from its cause.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from artifact_cache.printable import escape
from artifact_cache.secrets import HIDDEN, hide_secrets, repeats_secret

MAX_BYTES = 4 * 1024 * 1024  # what registries accept for a manifest
MAX_DEPTH = 64
MAX_VALUES = 1_000_000  # a value takes up to 100 bytes of memory
MAX_DIGITS = 40  # 2**128 has 39
_TOO_LARGE = 10**MAX_DIGITS
_CHECKED = (dict, list, int)  # once: 100 000 unions of types took longer than the look at them

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class NotStrict(ValueError):
    """The bytes are not JSON within the limits, or mean different things to different readers."""


def parse_json(
    data: bytes,
    *,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    max_values: int = MAX_VALUES,
    allow_infinity: bool = False,
) -> Any:
    """Parse one JSON value; raise `NotStrict` with a reason that fits into a sentence.

    `allow_infinity` accepts `Infinity` and `NaN`, which released model configurations contain.
    Strings are always encodable as UTF-8: half of a surrogate pair is refused.
    """
    if len(data) > max_bytes:
        raise NotStrict(f"it has {len(data)} bytes, more than {max_bytes}")
    # Never fewer than there are: separators inside strings count too.
    if data.count(b",") + data.count(b"[") + data.count(b"{") + 1 > max_values:
        raise NotStrict(f"it may hold more than {max_values} values")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotStrict(f"byte {error.start} is not UTF-8") from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=float if allow_infinity else parse_finite,
            parse_constant=None if allow_infinity else _refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise NotStrict(f"it is not JSON at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise NotStrict("it is nested too deeply") from None
    check_nesting(value, max_depth)
    if _SURROGATE.search(data):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise NotStrict("a string in it is half of a surrogate pair") from None
    return value


def strict_decoder() -> json.JSONDecoder:
    """Return a decoder for values that stand in a longer text; raises as `parse_json` does.

    Depth and the count of values are for the caller to limit.
    """
    return _DECODER


def parse_object(
    data: bytes,
    *,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    max_values: int = MAX_VALUES,
    allow_infinity: bool = False,
) -> dict[str, Any]:
    """Parse a JSON object as `parse_json` does."""
    value = parse_json(
        data,
        max_bytes=max_bytes,
        max_depth=max_depth,
        max_values=max_values,
        allow_infinity=allow_infinity,
    )
    if not isinstance(value, dict):
        raise NotStrict("it is not a JSON object")
    return value


def parse_first(text: str) -> tuple[Any, int]:
    """Parse the JSON value that `text` begins with; return it and where it ends.

    For documents that are read in pieces; the caller bounds the text.  Rules are
    those of `parse_json`, but for the depth, which is up to the interpreter.
    """
    try:
        return _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        raise NotStrict(f"it is not JSON at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise NotStrict("it is nested too deeply") from None


def shorten(value: object, limit: int = 80) -> str:
    """Quote a stranger's value for a message: printable, and never a screenful."""
    if isinstance(value, str):
        value = hide_secrets(value)
        value = HIDDEN if repeats_secret(value) else value[: limit * 2]
    quoted = escape(repr(value))
    return quoted if len(quoted) <= limit else f"{quoted[:limit]}…"


def check_nesting(value: object, levels: int = MAX_DEPTH) -> None:
    """Refuse a document that is deeper than so many levels, or has a number that is too long."""
    waiting = [(value, levels)]
    while waiting:
        one, left = waiting.pop()
        if isinstance(one, int) and abs(one) >= _TOO_LARGE:
            raise NotStrict(f"a number in it is too long: over {MAX_DIGITS} digits")
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else None
        if inner is None:
            continue
        if left == 0:
            raise NotStrict("it is nested too deeply")
        # Types first: 100 000 strings have one.
        if any(issubclass(kind, _CHECKED) for kind in set(map(type, inner))):
            waiting.extend((item, left - 1) for item in inner if isinstance(item, _CHECKED))


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise NotStrict(f"the key {shorten(_first_repeated(pairs))} stands twice")
    return made


def _first_repeated(pairs: Sequence[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return ""


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise NotStrict(f"a number in it is too long: over {MAX_DIGITS} digits")
    return int(digits)


def parse_finite(digits: str) -> float:
    """Parse a number that is not whole; refuse one that is out of range."""
    value = float(digits)
    if not math.isfinite(value):
        raise NotStrict(f"the number {shorten(digits)} is out of range")
    return value


def _refuse_constant(name: str) -> float:
    raise NotStrict(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_int=_integer,
    parse_float=parse_finite,
    parse_constant=_refuse_constant,
)
