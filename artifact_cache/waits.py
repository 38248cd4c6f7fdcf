"""Waits with an end, and those that a server asks for.

A byte now and then keeps every time-out of a socket from firing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


class TooLate(Exception):
    """Something did not end in its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no whole answer within {seconds:.0f} s")


def within(seconds: float | None, work: Callable[[], Found], name: str = "wait") -> Found:
    """Return what `work` returns, in a thread of its own; raise what it raises.

    Raises `TooLate` after so many seconds; None is without end.  The work continues in its daemon
    thread then, since a read cannot be ended from outside.
    """
    found: list[Found] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise TooLate(seconds or 0.0)
    return found[0]


def retry_after_s(value: str | None) -> float:
    """Read a `Retry-After` header: seconds or a date. Nonsense counts as none."""
    import email.utils  # only where a server asks to wait

    text = (value or "").strip()[:64]
    try:
        if text.isdecimal():
            return float(text)
        moment = email.utils.parsedate_to_datetime(text)
        return max(0.0, moment.timestamp() - time.time())
    except (ValueError, OverflowError, TypeError, IndexError):
        return 0.0
