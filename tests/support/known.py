"""Values that a test needs to be there."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def known(value: T | None) -> T:
    """Return a value; fail where it is None."""
    assert value is not None
    return value
