"""Quantization methods per architecture, and their requirements: `data/quantizable.toml`.

An architecture without a row is quantized only by methods that round each matrix by
itself: every matrix of a decoder may be rounded, wherever it stands.  Methods that pass
texts through the model, or move scales between modules, need to have been tried.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from packager.core.values import dataclass
from packager.share import read_shipped

TABLE = Path(__file__).parent / "data" / "quantizable.toml"

TABLE_OF = "llmcompressor"  # the quantizer that it speaks of

Kind = Literal["rounded", "calibrated", "folded"]

USUAL_LOADER, USUAL_LAYERS = "causal-lm", "model.layers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Table entry of a method for a model."""

    refused: str = ""  # why not; empty where it works
    tried: bool = True  # False: the architecture has no row
    loader: str = USUAL_LOADER
    folds: Mapping[str, Any] | None = None  # `layers` and `moves`, for the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One architecture of the table."""

    loader: str
    layers: str
    folds: Mapping[str, tuple[Mapping[str, Any], ...]]  # method → moves
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The file as it is read once."""

    methods: Mapping[str, Kind]
    calibrating_options: Mapping[str, frozenset[str]]
    defaults: Mapping[str, Any]
    rows: Mapping[str, Row]


def find_support(
    architecture: str,
    config: Mapping[str, Any],
    method: str,
    options: Collection[str] = (),
) -> Support:
    """Return what a method needs for a model, or why it does not work.

    Methods that the table does not name belong to other quantizers: it refuses none of them.
    """
    table = read_table()
    row = table.rows.get(architecture)
    if method not in table.methods:
        return Support(loader=row.loader if row else USUAL_LOADER)
    kind = _kind(table, method, options)
    if row is None:
        return Support(tried=False, refused="" if kind == "rounded" else _untried(kind))
    refused = next((row.refused[word] for word in (method, kind, "all") if word in row.refused), "")
    if refused or kind != "folded":
        return Support(refused=refused, loader=row.loader)
    moves = _moves(table, row.folds.get(method, ()), config)
    if not moves:
        return Support(refused="no norm of it feeds a matrix that scales could move into")
    return Support(loader=row.loader, folds={"layers": row.layers, "moves": moves})


@cache
def read_table() -> Table:
    """Read the file, references between its parts resolved."""
    told = read_shipped(TABLE)
    folds = {
        name: MappingProxyType({method: tuple(moves) for method, moves in row.items()})
        for name, row in told["folds"].items()
    }
    return Table(
        methods=MappingProxyType(told["methods"]),
        calibrating_options={
            name: frozenset(options) for name, options in told["calibrating_options"].items()
        },
        defaults=MappingProxyType(told["defaults"]),
        rows={
            name: Row(
                loader=row.get("loader", USUAL_LOADER),
                layers=row.get("layers", USUAL_LAYERS),
                folds=folds[row["folds"]] if "folds" in row else MappingProxyType({}),
                refused=MappingProxyType(row.get("refused", {})),
            )
            for name, row in told["architectures"].items()
        },
    )


def _kind(table: Table, method: str, options: Collection[str]) -> Kind:
    if table.calibrating_options.get(method, frozenset()).intersection(options):
        return "calibrated"
    return table.methods[method]


def _untried(kind: Kind) -> str:
    doing = "passes texts through the model" if kind == "calibrated" else "moves scales in it"
    return f"the method {doing}, which is untested"


def _moves(
    table: Table, stated: tuple[Mapping[str, Any], ...], config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the moves whose conditions config.json meets, without the conditions."""
    nested = config.get("text_config")
    told = {**config, **nested} if isinstance(nested, Mapping) else config
    return [
        {name: value for name, value in move.items() if name != "when"}
        for move in stated
        if all(
            told.get(key, table.defaults[key]) == value
            for key, value in move.get("when", {}).items()
        )
    ]
