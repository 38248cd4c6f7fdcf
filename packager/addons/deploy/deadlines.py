"""Ends of waits: an answer that comes byte by byte keeps every time-out of a socket from firing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

Found = TypeVar("Found")


class TooLate(Exception):
    """Something did not end in its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no whole answer within {seconds:.0f} s")


def within(seconds: float, work: Callable[[], Found]) -> Found:
    """Return what `work` returns; raise what it raises, or `TooLate` after so many seconds.

    It continues in a daemon thread, since a read cannot be ended from outside.
    """
    found: list[Found] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise TooLate(seconds)
    return found[0]


class Bounded:
    """An object whose methods end in time, with `TooLate` if need be."""

    def __init__(self, inner: Any, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of that name; of a method, one that ends in time."""
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            return within(self._seconds, lambda: found(*given, **named))

        return call
