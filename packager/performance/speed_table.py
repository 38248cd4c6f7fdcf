"""Coefficients of the speed model, by engine, device and kind of model (`data/speed.toml`).

`benchmarks/fit_speed.py` writes the table from measured curves.  A cell holds the coefficients of
one engine on one device for dense models or mixtures of experts, what they were fitted to, and
how far they missed curves that were left out of the fit.  The row of a kind holds coefficients of
all devices together and how far those missed models that were left out: it serves devices without
a cell, and bounds what may be promised for a model without curves.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packager.core.values import dataclass
from packager.performance.speed_terms import FIRST_TERMS, PROMPT_TERMS, STEP_TERMS
from packager.share import read_shipped

TABLE = Path(__file__).parent / "data" / "speed.toml"

Kind = Literal["dense", "moe"]

# What a model is recognised by: hidden size, layers, experts of a layer.
Form = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors that 90 of 100 unseen points stay below."""

    tpot: float
    ttft: float
    throughput: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Coefficients for one engine, device and kind of model."""

    engine: str  # "" in the row of a kind
    device: str
    kind: Kind
    step: tuple[float, ...]  # of `STEP_TERMS`
    prompt: tuple[float, ...]  # of `PROMPT_TERMS`
    first: tuple[float, ...]  # of `FIRST_TERMS`
    points: int
    curves: int
    errors: Errors  # on curves that were left out; in the row of a kind: on models
    median: float  # of the times per token, on the same
    forms: frozenset[tuple[Form, str]] = frozenset()  # and the arithmetic they were measured in
    most_sequences: int = 0  # at once on one server
    versions: tuple[str, str] = ("", "")  # of the engine, the oldest and the newest measured


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedTable:
    """All cells of the speed table, and their sources."""

    source: str
    date: str
    cells: Mapping[tuple[str, str, Kind], Cell]
    kinds: Mapping[Kind, Cell]
    drift: float  # by how much 9 of 10 points differ between two versions of an engine
    memory_share: Mapping[str, float]  # device → of its bandwidth, what products of matrices reach
    compute_share: Mapping[str, float]  # device → of its peak


@cache
def speed_table() -> SpeedTable:
    """Read the shipped table."""
    return parse_table(read_shipped(TABLE))


@cache
def measured_engines() -> frozenset[str]:
    """Return the engines that the shipped table has cells of."""
    return frozenset(engine for engine, _, _ in speed_table().cells)


def parse_table(document: Mapping[str, Any]) -> SpeedTable:
    """Return the table that a document holds; raise `ValueError` where its terms are others."""
    names = {"step": STEP_TERMS, "prompt": PROMPT_TERMS, "first": FIRST_TERMS}
    for name, terms in names.items():
        if tuple(document["terms"][name]) != terms:
            raise ValueError(f"the table's {name} terms are {document['terms'][name]}: refit it")
    cells = [_cell(row) for row in document["cell"]]
    return SpeedTable(
        source=document["source"],
        date=document["date"],
        cells={(cell.engine, cell.device, cell.kind): cell for cell in cells},
        kinds={cell.kind: cell for cell in map(_cell, document["kind"])},
        drift=document["drift"]["share"],
        memory_share={row["device"]: row["memory_share"] for row in document["device"]},
        compute_share={row["device"]: row["compute_share"] for row in document["device"]},
    )


def _cell(row: Mapping[str, Any]) -> Cell:
    return Cell(
        engine=row.get("engine", ""),
        device=row.get("device", ""),
        kind=row["kind"],
        step=tuple(row["step"]),
        prompt=tuple(row["prompt"]),
        first=tuple(row["first"]),
        points=row["points"],
        curves=row["curves"],
        errors=Errors(tpot=row["tpot"], ttft=row["ttft"], throughput=row["throughput"]),
        median=row["median"],
        forms=frozenset(
            ((hidden, layers, experts), precision)
            for hidden, layers, experts, precision in row["forms"]
        ),
        most_sequences=row.get("most_sequences", 0),
        versions=tuple(row.get("versions", ("", ""))),
    )
