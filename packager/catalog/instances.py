"""Machine types that can be rented, and machines that are named by their devices.

AWS's are read from `data/instances.csv`, those of other clouds from `data/machines.toml`.
`8xH100-80` needs no row: `bare_machine` makes one of the device.  Users' own machines come in
as `extra` and win by name.

A machine that SageMaker hosts endpoints on is called by its SageMaker name (`ml.g5.xlarge`),
any other of AWS's by its EC2 name (`gr6.4xlarge`).
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packager.catalog.accelerators import accelerator_rows
from packager.catalog.bare import bare_machine, machines_of
from packager.catalog.neuron import find_core
from packager.core.errors import UsageError
from packager.core.instance import DeviceKind, Instance
from packager.core.share import read_shipped
from packager.core.suggestions import other_word
from packager.core.units import GIB, MIB

DATA = Path(__file__).parent / "data"
TABLE = DATA / "instances.csv"
OTHER_CLOUDS = DATA / "machines.toml"
LEFT_OUT = DATA / "left_out.toml"
PROCESSORS = DATA / "processors.toml"

# column of the table → our word for what the device has kernels for
FORMAT_COLUMNS = {
    "bf16": "bf16",
    "int8_w8a8": "int8_w8a8",
    "int4_w4a16": "w4a16",
    "fp8_w8a16": "fp8_w8a16",
    "fp8_w8a8": "fp8_w8a8",
    "nvfp4_w4a4": "nvfp4_w4a4",
}

EC2_PRICE = "ec2 on-demand"  # basis of the price of a machine that SageMaker does not host on
NO_EC2_PRICE = "none: no on-demand price of EC2 was found"


def unknown_instance(name: str, nearest: tuple[str, ...]) -> UsageError:
    """Return an error: the catalog has no such instance type."""
    guess = f"did you mean {' or '.join(map(repr, nearest))}? " if nearest else ""
    word = other_word("instance", name)
    return UsageError(
        f"instance type {name!r} is not in the catalog",
        hint=word.hint
        if word
        else f"{guess}`packager list instances` shows them all; "
        "a machine without a row is named by its devices, such as 8xH100-80",
        code="UnknownInstance",
    )


def not_hosted(name: str) -> UsageError:
    """Return an error: SageMaker has no endpoints on an instance type that EC2 rents out."""
    return UsageError(
        f"{name!r} is not an instance type of SageMaker endpoints",
        hint=f"use EC2's name, {name.removeprefix('ml.')!r}, to plan for the machine itself",
        code="NotHosted",
    )


def left_out_instance(name: str, reason: str, instead: str) -> UsageError:
    """Return an error: no image of the catalog can serve on an instance type."""
    return UsageError(
        f"instance type {name!r} cannot serve: {reason}",
        hint=f"try {instead!r} instead",
        code="LeftOutInstance",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutFamily:
    """Machines that AWS rents out and the catalog does not list."""

    name: str  # `inf1`
    reason: str
    instead: str  # an instance type
    source: str
    date: str


@cache
def instances(extra: tuple[Instance, ...] = ()) -> tuple[Instance, ...]:
    """List every instance type, the user's own first, then in the tables' order."""
    own = {instance.name for instance in extra}
    shipped = (*(found for found, _ in instance_rows()), *other_machines())
    return extra + tuple(found for found in shipped if found.name not in own)


def find_instance(name: str, extra: tuple[Instance, ...] = ()) -> Instance:
    """Find an instance type by its own, its SageMaker or its EC2 name, or by its devices.

    Raises `unknown_instance`, `not_hosted` or `left_out_instance`, or what `bare_machine` raises.
    """
    known = {instance.name: instance for instance in instances(extra)}
    folded = {known_name.casefold(): known_name for known_name in known}
    for wanted in (name, f"ml.{name}", f"Standard_{name}"):
        if wanted in known:
            return known[wanted]
        if wanted.casefold() in folded:
            return known[folded[wanted.casefold()]]
    if (bare := bare_machine(name)) is not None:
        return bare
    ec2_name = name.removeprefix("ml.")
    if name.startswith("ml.") and ec2_name in known and known[ec2_name].cloud == "ec2":
        raise not_hosted(name)
    if family := left_out().get(ec2_name.partition(".")[0]):
        raise left_out_instance(name, family.reason, family.instead)
    if devices := machines_of(name):
        raise unknown_instance(name, devices)
    nearest = difflib.get_close_matches(name if name.startswith("ml.") else f"ml.{name}", known, 2)
    sizes = [one for one in known if one.removeprefix("ml.").startswith(f"{ec2_name}.")]
    nearest = nearest or difflib.get_close_matches(name, known, n=2) or sizes[:2]
    raise unknown_instance(name, tuple(nearest))


@cache
def instance_rows() -> tuple[tuple[Instance, Mapping[str, str]], ...]:
    """Return every machine of AWS with the row it was read from."""
    with TABLE.open(encoding="utf-8", newline="") as rows:
        return tuple((_instance(row), row) for row in csv.DictReader(rows))


@cache
def other_machines() -> tuple[Instance, ...]:
    """Return the machines of other clouds."""
    table = read_shipped(OTHER_CLOUDS)["series"]
    return tuple(machine for series in table for machine in _series(series))


@cache
def processor_flags() -> Mapping[str, tuple[str, ...]]:
    """Return the flags that the processors of a family of AWS's machines have at least, by name."""
    table = read_shipped(PROCESSORS)["processor"]
    return {family: tuple(row["flags"]) for row in table for family in row["families"]}


@cache
def left_out() -> Mapping[str, LeftOutFamily]:
    """Return the families of AWS's machines that have accelerators and no row, by name."""
    table = read_shipped(LEFT_OUT)["family"]
    return {row["name"]: LeftOutFamily(**row) for row in table}


def _series(series: Mapping[str, Any]) -> Iterator[Instance]:
    device = accelerator_rows()[series["device"]]
    for size in series["sizes"]:
        yield Instance(
            name=size["name"],
            kind=device.kind,
            device_name=device.name,
            devices=size["devices"],
            device_bytes=device.memory_bytes,
            host_bytes=size["host_gib"] * GIB,
            vcpus=size["vcpus"],
            compute_capability=device.compute_capability,
            formats=device.formats,
            price_basis="none: no published price was found",
            source=series["source"],
            date=series["date"],
            family=series["family"],
            link=series.get("link", device.link) if size["devices"] > 1 else "",
            machine=device.machine or None,
            network_gbps=series.get("network_gbps"),
            cloud=series["cloud"],
        )


def _instance(row: Mapping[str, str]) -> Instance:
    host_bytes = round(float(row["host_mem_gib"]) * GIB)
    formats = {word for column, word in FORMAT_COLUMNS.items() if row[column] == "1"}
    hosted = row["sm_hosting"] == "1"
    price = row["sagemaker_hosting_usd_hr" if hosted else "ec2_ondemand_usd_hr_us_east_1"]
    basis = row["sagemaker_price_basis"] if hosted else EC2_PRICE if price else NO_EC2_PRICE
    capability = row["cuda_compute_capability"]
    kind, device_name, devices, device_bytes = _devices(row, host_bytes)
    return Instance(
        name=row["ml_name"] if hosted else row["instance_type"],
        kind=kind,
        device_name=device_name,
        devices=devices,
        device_bytes=device_bytes,
        host_bytes=host_bytes,
        vcpus=int(row["vcpu"]),
        compute_capability=float(capability) if capability else None,
        formats=frozenset(formats | {"fp16", "fp32"}),
        price_usd_hour=float(price) if price else None,
        price_basis=basis,
        source=row["source"],
        date=row["date"],
        family=row["family"],
        link=row["interconnect"],
        cores_per_device=_joined(row["neuron_core_version"]),
        machine=row["machine"] or None,
        cloud="sagemaker" if hosted else "ec2",
        flags=processor_flags().get(row["family"], ()) if kind == "cpu" else (),
        network_gbps=_network_gbps(row["network"]),
    )


def _joined(core_version: str) -> int | None:
    """Return the physical cores of a logical one: 1 without NeuronCores, None where not known."""
    core = find_core(core_version)
    return (core.joined if core else None) if core_version else 1


def _network_gbps(words: str) -> int | None:
    """Read `3200 Gigabit` and `4x 100 Gigabit`; None for bursts, `Up to …`: no speed is kept."""
    match = re.fullmatch(r"(?:(\d+)x )?(\d+)(?:\.\d+)? Gigabit", words)
    return int(match[1] or 1) * int(match[2]) if match else None


def _devices(row: Mapping[str, str], host_bytes: int) -> tuple[DeviceKind, str, int, int]:
    if row["accel_vendor"] == "nvidia":
        device_bytes = int(row["accel_mem_mib_each"]) * MIB
        return "nvidia", row["accel_name"], int(row["accel_count"]), device_bytes
    if row["accel_vendor"] == "aws":
        chip_bytes = int(row["accel_mem_mib_each"]) * MIB
        joined = _joined(row["neuron_core_version"]) or 1  # refused when it is planned for
        cores = int(row["neuron_cores_total"]) // joined
        per_chip = int(row["neuron_cores_per_device"]) // joined
        return "neuron", f"NeuronCore-{row['neuron_core_version']}", cores, chip_bytes // per_chip
    return "cpu", "CPU", 1, host_bytes
