"""What must never happen, counted; a run ends with it as one line of JSON."""

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
    "pin_lost": 0,
    "sent_again": 0,
    "too_much_memory": 0,
}

TRIES = {"tries": 0}  # faults; a test may try many


def tried(faults: int = 1) -> None:
    """Count faults that were brought about inside one test."""
    TRIES["tries"] += faults


@contextmanager
def never(what: str) -> Iterator[None]:
    """Count a check that fails."""
    try:
        yield
    except Exception:
        NEVER[what] += 1
        raise
