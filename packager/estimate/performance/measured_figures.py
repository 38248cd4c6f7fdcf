"""Figures of benchmark results, refused where they are none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from packager.core.documents import NotStrict, field, shorten

MAX_CONCURRENCY = 1_000_000
SECONDS: Mapping[str, float] = {
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "milliseconds": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
}


def read_metric(document: Mapping[str, Any], name: str) -> tuple[float, str] | None:
    """Return the average of a metric and its unit; None where it is absent."""
    if name not in document:
        return None
    block = field(document, name, dict)
    return read_positive(block.get("avg"), f"{name}.avg"), field(block, "unit", str, name)


def read_seconds(document: Mapping[str, Any], name: str) -> float | None:
    """Return the average of a metric in seconds; None where it is absent."""
    found = read_metric(document, name)
    if found is None:
        return None
    value, unit = found
    if unit not in SECONDS:
        raise NotStrict(f"{name} has the unit {shorten(unit)}, not one of {', '.join(SECONDS)}")
    return value * SECONDS[unit]


def read_average(document: Mapping[str, Any], name: str) -> float | None:
    """Return the average of a metric; None where it is absent."""
    found = read_metric(document, name)
    return found[0] if found else None


def read_milliseconds(value: object, name: str) -> float | None:
    """Return a figure in milliseconds as seconds; None for none."""
    found = read_optional(value, name)
    return None if found is None else found / 1e3


def read_optional(value: object, name: str) -> float | None:
    """Return a positive figure; None for none."""
    return None if value is None else read_positive(value, name)


def read_positive(value: object, name: str) -> float:
    """Return a positive number; raise `NotStrict` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotStrict(f"{name} is {shorten(value)}, expected a number")
    if not math.isfinite(value) or not 0 < value < 1e12:
        raise NotStrict(f"{name} is {shorten(value)}, expected a positive number")
    return float(value)


def read_concurrency(value: object, name: str) -> int:
    """Return a number of requests at once; raise `NotStrict` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotStrict(
            f"{name} is {shorten(value)}, expected a number of requests at once: "
            "runs at a rate of requests say nothing of it"
        )
    if not 1 <= value <= MAX_CONCURRENCY:
        raise NotStrict(f"{name} is {value}, expected 1 to {MAX_CONCURRENCY}")
    return value
