"""What this machine has, and whether a step may start on it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from packager.adapters.executors.failures import StepTooLarge
from packager.adapters.machine import describe_machine
from packager.core.recipe import Step
from packager.core.units import GIB, decimal, gib

SPARE_DISK_BYTES = GIB // 4  # for logs and what else the machine does meanwhile


def machine_capacity(work_dir: Path) -> Mapping[str, float]:
    """Processors, memory, GPUs of this machine, and free disk where steps work."""
    machine = describe_machine()
    return {
        "cpus": float(machine.vcpus),
        "gpus": float(machine.devices if machine.kind == "nvidia" else 0),
        "memory_bytes": float(machine.host_bytes),
        "disk_bytes": float(free_bytes(work_dir)),
    }


def free_bytes(directory: Path) -> int:
    """Free disk space where a directory is, or will be."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def check_capacity(step: Step, have: Mapping[str, float], *, fetched: int = 0) -> None:
    """Refuse a step that needs more than there is, before it takes hours to find out."""
    needs = step.needs
    memory = needs.least_memory_bytes or needs.memory_bytes
    if memory > have["memory_bytes"]:
        raise StepTooLarge(
            f"step {step.name!r} needs about {gib(memory)} of memory, "
            f"this machine has {gib(have['memory_bytes'])}",
            hint="run it on a larger machine, or try all the same with --no-capacity-check",
        )
    disk = needs.disk_bytes + fetched
    if disk and disk + SPARE_DISK_BYTES > have["disk_bytes"]:
        raise StepTooLarge(
            f"step {step.name!r} needs about {decimal(disk)} of disk space, "
            f"{decimal(have['disk_bytes'])} are free",
            hint="free some space, put the cache elsewhere with --cache-dir, "
            "or try all the same with --no-capacity-check",
        )
    if step.gpus > have["gpus"]:
        raise StepTooLarge(
            f"step {step.name!r} needs {step.gpus} GPUs, this machine has {have['gpus']:.0f}",
            hint="run it on a machine with GPUs",
        )


def kernel_killed() -> int:
    """Count the processes that the kernel ended for memory since it started."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return 0


def visible_gpus(count: int) -> str:
    """Give CUDA_VISIBLE_DEVICES for the first GPUs; none at all for 0."""
    return ",".join(str(index) for index in range(count))
