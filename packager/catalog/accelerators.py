"""Accelerators: memory, bandwidth, arithmetic and links of one device, for budgets and predictions.

Figures, links and names come from `data/accelerators.toml`; an instance brings its memory.  On
Neuron a device is a core: the chip's figures are divided evenly.  Unpublished figures are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.catalog import Accelerator, Link
from packager.core.instance import DeviceKind, Instance, gpu_formats
from packager.core.share import read_shipped
from packager.core.units import MIB

TABLE = Path(__file__).parent / "data" / "accelerators.toml"

LINKS: Mapping[str, Link] = {
    "NVLink": "nvlink",
    "NVSwitch": "nvlink",
    "PCIe": "pcie",
    "Infinity Fabric": "xgmi",
    "NeuronLink-v2": "neuronlink",
    "NeuronLink-v3": "neuronlink",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorRow:
    """One device of the table."""

    name: str
    kind: DeviceKind
    spelled: str  # in `--instance 8xH100-80`; "" where it is not rented so
    must: frozenset[str]  # words that name it there
    may: frozenset[str]  # words that may stand beside them
    aliases: tuple[str, ...]  # beginnings of the names that drivers give it
    names: tuple[str, ...]  # such names as a whole
    compute_capability: float | None
    memory_bytes: int  # 0: stated by the instance
    visible_bytes: int  # what drivers show of the memory, where less; 0: not known
    bandwidth_bytes_s: float
    tflops: Mapping[str, float]
    formats: frozenset[str]
    link: str  # between several of one host, as in `Instance.link`
    link_bytes_s: float
    machine: str  # the host's architecture where it is always the same
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
    found = dict.fromkeys(part for part in (instance.source, row.source if row else "") if part)
    return Accelerator(
        name=name,
        kind=instance.kind,
        usable_bytes=usable_bytes(instance, row),
        bandwidth_bytes_s=row.bandwidth_bytes_s if row else 0.0,
        tflops=row.tflops if row else {},
        link=link,
        link_bytes_s=row.link_bytes_s if row and link else 0.0,
        compute_capability=instance.compute_capability,
        neuron_core=name.partition("-")[2] if instance.kind == "neuron" else "",
        formats=instance.formats,
        source="; ".join(found) or "described by this machine",
        date=instance.date or (row.date if row else ""),
    )


def accelerator_name(device_name: str) -> str:
    """Return the catalog's name for a driver's device name; an unknown device keeps its own."""
    if device_name in accelerator_rows():
        return device_name
    rows = accelerator_rows().values()
    if named := [row.name for row in rows if device_name in row.names]:
        return named[0]
    matches = (
        (len(alias), row.name)
        for row in rows
        for alias in row.aliases
        if device_name.startswith(alias)
    )
    # The longest beginning wins: "NVIDIA L40S" begins with "NVIDIA L4", too.
    return max(matches, default=(0, device_name))[1]


def link_of(instance: Instance) -> Link:
    """Return the link between the devices of an instance; "" for one device, or when unknown."""
    return LINKS.get(instance.link, "") if instance.devices > 1 else ""


def usable_bytes(instance: Instance, row: AcceleratorRow | None) -> int:
    """Return the memory that software sees, in bytes: what EC2 reports, or the driver if less."""
    if row is None or not row.visible_bytes:
        return instance.device_bytes
    return min(instance.device_bytes, row.visible_bytes)


@cache
def accelerator_rows() -> Mapping[str, AcceleratorRow]:
    """Read the table, by name."""
    table: list[dict[str, Any]] = read_shipped(TABLE)["accelerator"]
    return {row["name"]: _row(row) for row in table}


def _row(row: Mapping[str, Any]) -> AcceleratorRow:
    capability = row.get("compute_capability")
    formats = frozenset(row.get("formats", ())) | {"fp16", "fp32"}
    return AcceleratorRow(
        name=row["name"],
        kind=row["kind"],
        spelled=row.get("spelled", ""),
        must=frozenset(row.get("must", ())),
        may=frozenset(row.get("may", ())),
        aliases=tuple(row.get("aliases", ())),
        names=tuple(row.get("names", ())),
        compute_capability=capability,
        memory_bytes=row.get("memory_mib", 0) * MIB,
        visible_bytes=row.get("visible_mib", 0) * MIB,
        bandwidth_bytes_s=row.get("bandwidth_gb_s", 0) * 1e9,
        tflops=row.get("tflops", {}),
        formats=gpu_formats(capability) if capability else formats,
        link=row.get("link", ""),
        link_bytes_s=row.get("link_gb_s", 0) * 1e9,
        machine=row.get("machine", ""),
        source=row["source"],
        date=row["date"],
    )
