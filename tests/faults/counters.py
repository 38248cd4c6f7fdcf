"""What must never happen, counted; `make faults` prints it as one line of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

NEVER = {
    "wrong_bytes": 0,
    "incomplete_tag": 0,
    "secrets_found": 0,
    "hangs": 0,
    "untyped_failures": 0,
    "manual_cleanup": 0,
    "garbage_left": 0,
    "sent_again": 0,
}


@contextmanager
def never(what: str) -> Iterator[None]:
    """Count a check that fails."""
    try:
        yield
    except Exception:
        NEVER[what] += 1
        raise
