"""What SGLang made of the values that it was given."""

from __future__ import annotations

import json
from typing import Any

LONGEST = 300  # characters of a reason


def effective(arguments: Any, name: str) -> Any:
    """Return a field as it is after resolution; since 0.5.23 it is kept beside what was asked."""
    try:
        from sglang.srt.arg_groups.overrides import resolution_result
    except ImportError:
        return getattr(arguments, name)
    try:
        return resolution_result(arguments, name)
    except Exception:
        return getattr(arguments, name)


def differences(arguments: Any, asked: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    changed = {}
    for names, value in asked.items():
        field = next((name for name in names if hasattr(arguments, name)), None)
        if field is None:
            continue
        now = effective(arguments, field)
        if not is_the_same(value, now):
            changed[field.replace("_", "-")] = [printable(value), printable(now)]
    return changed


def is_the_same(asked: Any, now: Any) -> bool:
    """Whether a value only changed its form: `auto` chosen, names made capitals, JSON read."""
    if asked in ("auto", "unquant", ["all"]) or not is_plain(now):
        return True
    if isinstance(asked, str) and isinstance(now, (dict, list)):
        return True
    if isinstance(asked, str) and isinstance(now, str):
        return asked.lower() == now.lower()
    return bool(comparable(asked) == comparable(now))


def is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(is_plain(one) for one in value)
    return value is None or isinstance(value, (str, int, float, bool, dict))


def comparable(value: Any) -> Any:
    if isinstance(value, (list, tuple, set, frozenset)):
        return sorted(str(one) for one in value)
    return value


def printable(value: Any) -> Any:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return shorten(repr(value))
    return value


def shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
