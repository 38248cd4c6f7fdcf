"""Machines to serve on: devices, their memory and what they can compute with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

DeviceKind = Literal["nvidia", "amd", "neuron", "cpu"]
Cloud = Literal["sagemaker", "ec2", "gcp", "azure", "bare"]

GPUS: tuple[DeviceKind, ...] = ("nvidia", "amd")

LOCAL = "local"  # the name of the machine that builds

# What some version of an engine has kernels for, from this compute capability on; rules say which
# lack them.  The catalog's rows say the same of each type: packager/catalog/data/README.md.
GPU_FORMATS = (
    (7.5, {"int8_w8a8", "w4a16", "fp8_w8a16"}),
    (8.0, {"bf16"}),
    (8.9, {"fp8_w8a8"}),
    (10.0, {"nvfp4_w4a4"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One machine type. A device is one unit that tensor parallelism counts."""

    name: str  # `ml.g5.xlarge`, `a3-highgpu-8g`, `8xH100-80`, `local`
    kind: DeviceKind
    device_name: str  # `A10G`, `NeuronCore-v2`, the CPU's model
    devices: int
    device_bytes: int  # memory of one device; for `cpu`, of the host
    host_bytes: int | None  # None: not known
    vcpus: int | None  # None: not known
    compute_capability: float | None = None  # NVIDIA only: 8.6
    formats: frozenset[str] = frozenset()  # what kernels exist for: `bf16`, `w4a16`, `fp8_w8a8`, …
    price_usd_hour: float | None = None
    price_basis: str = ""
    source: str = ""
    date: str = ""  # when the row was true
    family: str | None = None  # `g5`; None of machines that are of no series
    link: str = ""  # between its devices: `PCIe`, `NVLink`, `NVSwitch`, `NeuronLink-v2`
    # Neuron only: physical cores that make one logical core; None: not known, and not planned.
    cores_per_device: int | None = 1
    machine: str | None = None  # its architecture, `x86_64`; None: not known
    isa: tuple[str, ...] = ()  # instruction sets of its processor; () if unknown
    flags: tuple[str, ...] = ()  # some of these, that machines of this type are known to have
    cloud: Cloud | None = None  # who rents it out; None for the user's own rows and this machine
    network_gbps: int | None = None  # to other machines, Gbit/s that it always has; None: not known


def with_ranks(instance: Instance, tp_degree: int | None) -> Instance:
    """Return a processor as the ranks that a model is split over, each with its share of memory.

    vLLM starts a process for each rank on one machine; more than threads would only wait.
    """
    if instance.kind != "cpu" or not 1 < (tp_degree or 1) <= (instance.vcpus or 1):
        return instance
    assert tp_degree is not None
    share = instance.device_bytes // tp_degree
    return replace(instance, devices=tp_degree, device_bytes=share)


def gpu_formats(compute_capability: float) -> frozenset[str]:
    """Return which formats an NVIDIA GPU of this compute capability has kernels for."""
    have: set[str] = {"fp16", "fp32"}
    for since, formats in GPU_FORMATS:
        if compute_capability >= since:
            have |= formats
    return frozenset(have)
