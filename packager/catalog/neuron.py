"""Versions of NeuronCores: `data/neuron.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.share import read_shipped

TABLE = Path(__file__).parent / "data" / "neuron.toml"

COMMON_DEGREES = (1, 2, 8)  # of a version whose guides are unread


@dataclass(frozen=True, slots=True, kw_only=True)
class NeuronCore:
    """One version of NeuronCores."""

    version: str  # `v2`
    arch: str  # as compilers name it: `trn1`
    families: tuple[str, ...]  # of instance types: `inf2`
    joined: int | None = None  # physical cores in one logical core; None: not known
    degrees: tuple[int, ...] = COMMON_DEGREES  # tensor-parallel degrees of Neuron's guides
    compiles: bool = False  # packager's toolchains compile for it without a device
    source: str
    date: str


def find_core(version: str) -> NeuronCore | None:
    """Return the row of a version; None where there is none."""
    return next((core for core in neuron_cores() if core.version == version), None)


def core_of_instance(instance_type: str) -> NeuronCore | None:
    """Return the cores of an instance type by its family: those of `ml.inf2.xlarge` are v2."""
    family = instance_type.removeprefix("ml.").partition(".")[0]
    return next((core for core in neuron_cores() if family in core.families), None)


@cache
def neuron_cores() -> tuple[NeuronCore, ...]:
    """Read the table."""
    table = read_shipped(TABLE)["core"]
    return tuple(_core(row) for row in table)


def _core(row: Mapping[str, Any]) -> NeuronCore:
    return NeuronCore(
        **{
            **row,
            "families": tuple(row["families"]),
            "degrees": tuple(row.get("degrees", COMMON_DEGREES)),
        }
    )
