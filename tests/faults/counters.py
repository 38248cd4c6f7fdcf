"""What must never happen, counted; a run ends with it as one line of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_HARMS = (
    "wrong_bytes incomplete_tag secrets_found hangs untyped_failures manual_cleanup garbage_left"
)
NEVER = dict.fromkeys(f"{_HARMS} pin_lost sent_again too_much_memory".split(), 0)

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
