"""Coefficients of the speed model, by engine, device and kind of model (`data/speed.toml`).

`benchmarks/fit_speed.py` writes the table from measured curves.  A cell holds the coefficients of
one engine on one device for dense models or mixtures of experts, what they were fitted to, and
how far they missed curves that were left out of the fit.  The row of an engine holds coefficients
of all its devices together and how far those missed models that were left out: it serves devices
without a cell, and bounds what may be promised for a model without curves.  The row of a kind
does so for all engines.  A model that was measured has a factor of its own, the same on every
device and in every format, so that no model turns their order around.  Where most measurements of
a model do, its steps and prompts take so many times as long on that device; where some do, the
prediction keeps the order; a plan says either (`ReversedOrder`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packager.core.share import read_shipped
from packager.estimate.performance.speed_terms import PROMPT_TERMS, STEP_TERMS

TABLE = Path(__file__).parent / "data" / "speed.toml"

Kind = Literal["dense", "moe"]

# What a model is recognised by: hidden size, layers, experts of a layer.
Form = tuple[int, int, int]
# Engine, model, arithmetic, device.
ReversedKey = tuple[str, Form, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors that 90 of 100 unseen points stay below."""

    tpot: float
    throughput: float

    def at_least(self, other: Errors) -> Errors:
        """Return the larger of each."""
        return Errors(
            tpot=max(self.tpot, other.tpot),
            throughput=max(self.throughput, other.throughput),
        )

    def times(self, factor: float) -> Errors:
        """Return each as many times as large."""
        return Errors(
            tpot=factor * self.tpot,
            throughput=factor * self.throughput,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Coefficients for one engine, device and kind of model."""

    engine: str  # "" of all engines
    device: str  # "" of all devices
    kind: Kind
    step: tuple[float, ...]  # of `STEP_TERMS`
    prompt: tuple[float, ...]  # of `PROMPT_TERMS`
    points: int
    curves: int
    errors: Errors  # on curves that were left out; of all devices: on models
    median: float  # of the times per token, on the same
    forms: frozenset[tuple[Form, str]]  # and the arithmetic they were measured in
    most_sequences: int  # at once on one server
    most_tokens: int  # of a request with its answer
    versions: tuple[str, str] = ("", "")  # of the engine, the oldest and the newest measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How much wider errors become with each doubling beyond what was measured."""

    requests: float  # at once, on one server; relative: 0.25 is a quarter wider
    tokens: float  # of a request with its answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversedOrder:
    """Points at which a device was measured slower than one that it outdoes by its data sheet."""

    than: str  # the device that it outdoes
    points: int  # measured on both
    slower: int  # of them
    longest: float  # how many times as long it took, at most
    errors: Errors  # of predictions of the model's points on the device
    step: float = 1.0  # how many times as long a step of the model takes there
    prompt: float = 1.0  # and a prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedTable:
    """All cells of the speed table, and their sources."""

    source: str
    date: str
    cells: Mapping[tuple[str, str, Kind], Cell]
    drift: float  # by how much 9 of 10 points differ between two versions of an engine
    memory_share: Mapping[str, float]  # device → of its bandwidth, what products of matrices reach
    compute_share: Mapping[str, float]  # device → of its peak
    models: Mapping[tuple[str, Form], float]  # by engine: what times are multiplied by
    beyond: Mapping[Kind, Growth]
    reversed_orders: Mapping[ReversedKey, tuple[ReversedOrder, ...]]

    def of_engine(self, engine: str, kind: Kind) -> Cell:
        """Return the row of all devices together: of the engine, else of all engines."""
        return self.cells.get((engine, "", kind), self.cells["", "", kind])


@cache
def speed_table() -> SpeedTable:
    """Read the shipped table."""
    return parse_table(read_shipped(TABLE))


@cache
def measured_engines() -> frozenset[str]:
    """Return the engines that the shipped table has cells of."""
    return frozenset(engine for engine, _, _ in speed_table().cells if engine)


def parse_table(document: Mapping[str, Any]) -> SpeedTable:
    """Return the table that a document holds; raise `ValueError` where its terms are others."""
    names = {"step": STEP_TERMS, "prompt": PROMPT_TERMS}
    for name, terms in names.items():
        if tuple(document["terms"][name]) != terms:
            raise ValueError(f"the table's {name} terms are {document['terms'][name]}: refit it")
    cells = [_cell(row) for row in document["cell"]]
    return SpeedTable(
        source=document["source"],
        date=document["date"],
        cells={(cell.engine, cell.device, cell.kind): cell for cell in cells},
        drift=document["drift"]["share"],
        memory_share={row["device"]: row["memory_share"] for row in document["device"]},
        compute_share={row["device"]: row["compute_share"] for row in document["device"]},
        models={(row["engine"], tuple(row["form"])): row["tpot"] for row in document["model"]},
        beyond={
            row["kind"]: Growth(requests=row["requests"], tokens=row["tokens"])
            for row in document.get("beyond", ())
        },
        reversed_orders=_reversed_orders(document.get("reversed", ())),
    )


def _reversed_orders(
    rows: Iterable[Mapping[str, Any]],
) -> Mapping[ReversedKey, tuple[ReversedOrder, ...]]:
    found: dict[ReversedKey, tuple[ReversedOrder, ...]] = {}
    for row in rows:
        key = (row["engine"], tuple(row["form"]), row["precision"], row["device"])
        one = ReversedOrder(
            than=row["than"],
            points=row["points"],
            slower=row["slower"],
            longest=row["longest"],
            errors=Errors(tpot=row["tpot"], throughput=row["throughput"]),
            step=row.get("step", 1.0),
            prompt=row.get("prompt", 1.0),
        )
        found[key] = (*found.get(key, ()), one)
    return found


def _cell(row: Mapping[str, Any]) -> Cell:
    return Cell(
        engine=row["engine"],
        device=row["device"],
        kind=row["kind"],
        step=tuple(row["step"]),
        prompt=tuple(row["prompt"]),
        points=row["points"],
        curves=row["curves"],
        errors=Errors(tpot=row["tpot"], throughput=row["throughput"]),
        median=row["median"],
        forms=frozenset(
            ((hidden, layers, experts), precision)
            for hidden, layers, experts, precision in row["forms"]
        ),
        most_sequences=row["most_sequences"],
        most_tokens=row["most_tokens"],
        versions=(*row["versions"], "", "")[:2],
    )
