"""Which known name was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Give the known name that is most like `name`, or ""."""
    found = difflib.get_close_matches(name, tuple(known), n=1)
    return found[0] if found else ""
