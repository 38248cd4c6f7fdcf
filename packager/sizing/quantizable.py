"""Quantization methods per architecture, and their requirements: `data/quantizable.toml`.

An architecture without a row was not tried.  Methods that round each matrix by itself are allowed
with a warning: every matrix of a decoder may be rounded, wherever it stands.  Methods that pass
texts through the model, or move scales between modules, wait for `--try-untested`.
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

USUAL_LOADER = "causal-lm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Table entry of a method for a model."""

    refused: str = ""  # why not; empty where it works
    tried: bool = True  # False: the architecture has no row
    loader: str = USUAL_LOADER
    folds: Literal["", "norms", "all"] = ""  # what scales move out of: norms, or matrices too
    unfolded: tuple[str, ...] = ()  # sources of scales that are left alone, below a layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One architecture of the table."""

    loader: str
    unfolded: Mapping[str, tuple[str, ...]]  # method → sources of scales
    refused: Mapping[str, str]
    refused_when: Mapping[str, Any]  # values of config.json


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The file as it is read once."""

    methods: Mapping[str, Kind]
    calibrating_options: Mapping[str, frozenset[str]]
    folds: Mapping[str, Literal["norms", "all"]]  # method → what scales move out of
    rows: Mapping[str, Row]


def find_support(
    architecture: str,
    config: Mapping[str, Any],
    method: str,
    options: Collection[str] = (),
    *,
    untested: bool = False,
) -> Support:
    """Return what a method needs for a model, or why it is refused.

    `untested` allows every method for architectures without a row.  Methods that the table does
    not name belong to other quantizers: it refuses none of them.
    """
    table = read_table()
    row = table.rows.get(architecture)
    if method not in table.methods:
        return Support(loader=row.loader if row else USUAL_LOADER)
    kind = _kind(table, method, options)
    folds = table.folds[method] if kind == "folded" else ""
    if row is None:
        allowed = untested or kind == "rounded"
        return Support(tried=False, refused="" if allowed else _untried(kind), folds=folds)
    refused = next((row.refused[word] for word in (method, kind, "all") if word in row.refused), "")
    if any(config.get(key) != value for key, value in row.refused_when.items()):
        refused = ""
    left = row.unfolded.get(method, ())
    return Support(refused=refused, loader=row.loader, folds=folds, unfolded=left)


@cache
def read_table() -> Table:
    """Read the file, references between its parts resolved."""
    told = read_shipped(TABLE)
    return Table(
        methods=MappingProxyType(told["methods"]),
        calibrating_options={
            name: frozenset(options) for name, options in told["calibrating_options"].items()
        },
        folds=MappingProxyType(told["folds"]),
        rows={
            name: Row(
                loader=row.get("loader", USUAL_LOADER),
                unfolded={m: tuple(sources) for m, sources in row.get("unfolded", {}).items()},
                refused=MappingProxyType(row.get("refused", {})),
                refused_when=MappingProxyType(row.get("refused_when", {})),
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
    return f"the method {doing}"
