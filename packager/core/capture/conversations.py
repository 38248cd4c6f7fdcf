"""Which conversations are captured: the choice depends on their first turn alone.

So all turns of a conversation are captured or none, and every replica chooses the same.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

_LARGEST = 2**64


def is_chosen(request: bytes, share: float) -> bool:
    """Return whether the conversation of a request is among a share, from 0 to 1, of all."""
    if share >= 1:
        return True
    return fraction_of(first_turn(request)) < share


def fraction_of(key: bytes) -> float:
    """Return a number from 0 to below 1 that depends on the key alone, and evenly."""
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big") / _LARGEST


def first_turn(request: bytes) -> bytes:
    """Return what stays the same in all requests of one conversation.

    It is the first message of the user; a prompt or other input otherwise; else the body.
    """
    try:
        document = json.loads(request)
    except (ValueError, RecursionError):
        return request
    found = _first(document) if isinstance(document, dict) else None
    return request if found is None else json.dumps(found, sort_keys=True).encode()


def _first(document: dict[str, Any]) -> Any:
    for name in ("messages", "inputs", "prompt"):
        value = document.get(name)
        if isinstance(value, list):
            users = (one for one in value if isinstance(one, dict) and one.get("role") == "user")
            return next(users, {}).get("content", value)
        if value is not None:
            return value
    return None
