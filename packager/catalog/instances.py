"""Machine types that can be rented, read from `data/instances.csv`.

Users' own machines come in as `extra` and win by name.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from packager.core.instance import DeviceKind, Instance
from packager.core.units import GIB, MIB
from packager.errors import UsageError

TABLE = Path(__file__).parent / "data" / "instances.csv"

# column of the table → our word for what the device has kernels for
FORMAT_COLUMNS = {
    "bf16": "bf16",
    "int8_w8a8": "int8_w8a8",
    "int4_w4a16": "w4a16",
    "fp8_w8a16": "fp8_w8a16",
    "fp8_w8a8": "fp8_w8a8",
    "nvfp4_w4a4": "nvfp4_w4a4",
}

# Physical cores in one logical core: what tensor parallelism counts.  Trainium2 and later join
# two by default, and their toolchains compile for that (optimum-neuron: LNC 2 for trn2).
CORES_PER_DEVICE = {"v2": 1, "v3": 2}


class UnknownInstance(UsageError):
    """The catalog has no such instance type."""

    def __init__(self, name: str, nearest: tuple[str, ...]) -> None:
        guess = f"did you mean {' or '.join(map(repr, nearest))}? " if nearest else ""
        super().__init__(
            f"instance type {name!r} is not in the catalog",
            hint=f"{guess}`packager list instances` shows them all",
        )


@cache
def instances(extra: tuple[Instance, ...] = ()) -> tuple[Instance, ...]:
    """List every instance type, the user's own first, then in the table's order."""
    own = {instance.name for instance in extra}
    return extra + tuple(found for found, _ in instance_rows() if found.name not in own)


def find_instance(name: str, extra: tuple[Instance, ...] = ()) -> Instance:
    """Find an instance type by its own, its SageMaker or its EC2 name."""
    known = {instance.name: instance for instance in instances(extra)}
    for wanted in (name, f"ml.{name}"):
        if wanted in known:
            return known[wanted]
    prefixed = name if name.startswith("ml.") else f"ml.{name}"
    nearest = difflib.get_close_matches(prefixed, known, n=2)
    raise UnknownInstance(name, tuple(nearest or difflib.get_close_matches(name, known, n=2)))


@cache
def instance_rows() -> tuple[tuple[Instance, Mapping[str, str]], ...]:
    """Give every shipped instance with the row it was read from."""
    with TABLE.open(encoding="utf-8", newline="") as rows:
        return tuple((_instance(row), row) for row in csv.DictReader(rows))


def _instance(row: Mapping[str, str]) -> Instance:
    host_bytes = round(float(row["host_mem_gib"]) * GIB)
    formats = {word for column, word in FORMAT_COLUMNS.items() if row[column] == "1"}
    price = row["sagemaker_hosting_usd_hr"]
    capability = row["cuda_compute_capability"]
    kind, device_name, devices, device_bytes = _devices(row, host_bytes)
    return Instance(
        name=row["ml_name"],
        kind=kind,
        device_name=device_name,
        devices=devices,
        device_bytes=device_bytes,
        host_bytes=host_bytes,
        vcpus=int(row["vcpu"]),
        compute_capability=float(capability) if capability else None,
        formats=frozenset(formats | {"fp16", "fp32"}),
        price_usd_hour=float(price) if price else None,
        price_basis=row["sagemaker_price_basis"],
        source=row["source"],
        date=row["date"],
        family=row["family"],
        link=row["interconnect"],
        cores_per_device=CORES_PER_DEVICE.get(row["neuron_core_version"], 1),
    )


def _devices(row: Mapping[str, str], host_bytes: int) -> tuple[DeviceKind, str, int, int]:
    if row["accel_vendor"] == "nvidia":
        device_bytes = int(row["accel_mem_mib_each"]) * MIB
        return "nvidia", row["accel_name"], int(row["accel_count"]), device_bytes
    if row["accel_vendor"] == "aws":
        chip_bytes = int(row["accel_mem_mib_each"]) * MIB
        joined = CORES_PER_DEVICE[row["neuron_core_version"]]
        cores = int(row["neuron_cores_total"]) // joined
        per_chip = int(row["neuron_cores_per_device"]) // joined
        return "neuron", f"NeuronCore-{row['neuron_core_version']}", cores, chip_bytes // per_chip
    return "cpu", "CPU", 1, host_bytes
