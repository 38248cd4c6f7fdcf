"""What one device of an instance is and can do, for budgets and for the predictor.

Figures come from `data/instances.csv`, which lists accelerators per instance,
and links from `data/accelerators.toml`.  On Neuron a device is a core: the
chip's figures are divided evenly.  What nobody published is 0.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from packager.catalog.instances import instance_rows
from packager.core.catalog import Accelerator, Link
from packager.core.instance import Instance
from packager.core.units import MIB

TABLE = Path(__file__).parent / "data" / "accelerators.toml"

LINKS: Mapping[str, Link] = {
    "NVLink": "nvlink",
    "NVSwitch": "nvlink",
    "PCIe": "pcie",
    "NeuronLink-v2": "neuronlink",
    "NeuronLink-v3": "neuronlink",
}

# column of instances.csv → our word; the first is fp16 on GPUs that have no bf16
TFLOPS_COLUMNS = {
    "bf16_dense_tflops_each": "bf16",
    "int8_tops_each": "int8",
    "fp8_dense_tflops_each": "fp8",
    "fp4_dense_tflops_each": "fp4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorRow:
    """What the table adds to the list of instances."""

    name: str
    aliases: tuple[str, ...]
    link_bytes_s: float
    visible_bytes: int  # what drivers show of the memory, where less; 0: not known
    source: str
    date: str


def accelerator_of(instance: Instance, extra: tuple[Accelerator, ...] = ()) -> Accelerator:
    """Describe one device of an instance; an unknown one by what the instance itself says.

    The user's own figures for a device of that name win; its memory and its link are the
    instance's.
    """
    link = link_of(instance)
    for own in extra:
        if own.name == instance.device_name:
            return replace(
                own,
                usable_bytes=instance.device_bytes,
                link=link,
                link_bytes_s=own.link_bytes_s if own.link == link else 0.0,
            )
    name = accelerator_name(instance.device_name)
    row = accelerator_rows().get(name)
    figures = device_figures().get(name, {})
    found = "; ".join(part for part in (instance.source, row.source if row else "") if part)
    return Accelerator(
        name=name,
        kind=instance.kind,
        usable_bytes=usable_bytes(instance, row),
        bandwidth_bytes_s=figures.get("bandwidth_bytes_s", 0.0),
        tflops={word: figures[word] for word in TFLOPS_COLUMNS.values() if word in figures},
        link=link,
        link_bytes_s=row.link_bytes_s if row and link else 0.0,
        compute_capability=instance.compute_capability,
        neuron_core=name.partition("-")[2] if instance.kind == "neuron" else "",
        formats=instance.formats,
        source=found or "described by this machine",
        date=instance.date or (row.date if row else ""),
    )


def accelerator_name(device_name: str) -> str:
    """Give our name for what a driver calls a device; a stranger keeps its own."""
    if device_name in accelerator_rows():
        return device_name
    matches = (
        (len(alias), row.name)
        for row in accelerator_rows().values()
        for alias in row.aliases
        if device_name.startswith(alias)
    )
    # The longest beginning wins: "NVIDIA L40S" begins with "NVIDIA L4", too.
    return max(matches, default=(0, device_name))[1]


def link_of(instance: Instance) -> Link:
    """Say what joins the devices of an instance; "" for one device, or when nobody says."""
    return LINKS.get(instance.link, "") if instance.devices > 1 else ""


def usable_bytes(instance: Instance, row: AcceleratorRow | None) -> int:
    """Give the memory that software sees: what EC2 reports, or the driver if it shows less."""
    if row is None or not row.visible_bytes:
        return instance.device_bytes
    return min(instance.device_bytes, row.visible_bytes)


@cache
def accelerator_rows() -> Mapping[str, AcceleratorRow]:
    """Read the table of links and names."""
    table: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["accelerator"]
    return {
        row["name"]: AcceleratorRow(
            name=row["name"],
            aliases=tuple(row.get("aliases", ())),
            link_bytes_s=row.get("link_gb_s", 0) * 1e9,
            visible_bytes=row.get("visible_mib", 0) * MIB,
            source=row["source"],
            date=row["date"],
        )
        for row in table
    }


@cache
def device_figures() -> Mapping[str, Mapping[str, float]]:
    """Give bandwidth and TFLOPS of one device by its name, from the list of instances."""
    figures: dict[str, dict[str, float]] = {}
    for instance, row in instance_rows():
        if instance.kind == "cpu" or instance.device_name in figures:
            continue
        share = instance.devices / int(row["accel_count"])  # logical cores of one chip
        found = {
            word: float(row[column]) / share
            for column, word in TFLOPS_COLUMNS.items()
            if row[column]
        }
        if row["mem_bw_gbs_each"]:
            found["bandwidth_bytes_s"] = float(row["mem_bw_gbs_each"]) * 1e9 / share
        figures[instance.device_name] = found
    return figures
