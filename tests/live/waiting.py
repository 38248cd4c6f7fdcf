"""Waiting for what happens elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(is_so: Callable[[], object], limit_s: float = 240) -> None:
    """Wait until something is so; fail where it is not in time."""
    until = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.05)
