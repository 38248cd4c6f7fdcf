"""Machines to serve on: devices, their memory and what they can compute with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["nvidia", "neuron", "cpu"]

LOCAL = "local"  # the name of the machine that builds


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One machine type. A device is one unit that tensor parallelism counts."""

    name: str  # `ml.g5.xlarge`, `local`
    kind: DeviceKind
    device_name: str  # `A10G`, `NeuronCore-v2`, the CPU's model
    devices: int
    device_bytes: int  # memory of one device; for `cpu`, of the host
    host_bytes: int
    vcpus: int
    compute_capability: float | None = None  # NVIDIA only: 8.6
    formats: frozenset[str] = frozenset()  # what kernels exist for: `bf16`, `w4a16`, `fp8_w8a8`, …
    price_usd_hour: float | None = None
    price_basis: str = ""
    source: str = ""
    date: str = ""  # when the row was true
    family: str = ""  # `g5`
    link: str = ""  # between its devices: `PCIe`, `NVLink`, `NVSwitch`, `NeuronLink-v2`
    cores_per_device: int = 1  # Neuron only: physical cores that make one logical core
    machine: str = ""  # its architecture, `x86_64`; "" when nobody says
    isa: tuple[str, ...] = ()  # instruction sets of its processor; () when nobody says
