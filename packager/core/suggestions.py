"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to `name`, or ""."""
    found = difflib.get_close_matches(name, tuple(known), n=1)
    return found[0] if found else ""


def guessed(name: str, known: Iterable[str], hint: str) -> str:
    """Return the hint, behind the known name nearest to `name` where one is near."""
    close = guess(name, known)
    return f"{close} {hint}" if close else hint


def guess(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint that names the known name nearest to `name`, else `otherwise`."""
    close = nearest(name, known)
    return f"did you mean {close!r}?" if close else otherwise
