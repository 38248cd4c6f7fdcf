"""Targets of benchmarks, as the last line of each says what was compared with what.

`make bench-all` prints the rows of all of them as one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class Judged(TypedDict):
    """One target and the figure that is held against it."""

    name: str
    target: str
    figure: float | bool | None  # None: it was not measured, which meets nothing
    met: bool


def at_most(name: str, figure: float | None, limit: float) -> Judged:
    """Compare a figure with the most that it may be."""
    met = figure is not None and figure <= limit
    return {"name": name, "target": f"≤ {limit:g}", "figure": _rounded(figure), "met": met}


def at_least(name: str, figure: float | None, limit: float) -> Judged:
    """Compare a figure with the least that it may be."""
    met = figure is not None and figure >= limit
    return {"name": name, "target": f"≥ {limit:g}", "figure": _rounded(figure), "met": met}


def within(name: str, figure: float | None, low: float, high: float) -> Judged:
    """Compare a figure with the range that it may be in."""
    met = figure is not None and low <= figure <= high
    target = f"{low:g} to {high:g}"
    return {"name": name, "target": target, "figure": _rounded(figure), "met": met}


def holds(name: str, found: bool | None) -> Judged:
    """State something that has to be so."""
    return {"name": name, "target": "yes", "figure": found, "met": bool(found)}


def all_at_most(figures: Mapping[str, Any], limits: Mapping[str, float]) -> list[Judged]:
    """Compare figures with limits of the same names; one that is not there was not measured."""
    return [at_most(name, figures.get(name), limit) for name, limit in limits.items()]


def verdict(rows: Sequence[Judged]) -> dict[str, Any]:
    """Return what the last line of a benchmark says of its targets."""
    missed = [row["name"] for row in rows if not row["met"]]
    return {"compared": list(rows), "missed": missed, "targets_met": not missed}


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 4)
