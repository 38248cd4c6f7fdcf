"""Capacity of this machine, and whether a step may start on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from packager.catalog.machine import describe_machine
from packager.core.recipe import Step
from packager.core.units import GIB, decimal, gib
from packager.optimize.steps.failures import StepTooLarge

SPARE_DISK_BYTES = GIB // 4  # for logs and what else the machine does meanwhile
_MORE_THAN_ANY = 1024  # GPUs of a machine


def machine_capacity(
    work_dir: Path, environment: Mapping[str, str] = os.environ
) -> Mapping[str, float]:
    """Measure processors, memory and GPUs that are ours, and free disk where steps work."""
    machine = describe_machine()
    gpus = machine.devices if machine.kind == "nvidia" else 0
    return {
        "cpus": float(machine.vcpus or 0),
        "gpus": float(len(own_gpus(gpus, environment))),
        "gpu_bytes": float(machine.device_bytes if gpus else 0),
        "memory_bytes": float(machine.host_bytes or 0),
        "disk_bytes": float(free_bytes(work_dir)),
    }


def free_bytes(directory: Path) -> int:
    """Return the free disk space in bytes where a directory is, or will be."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def check_capacity(
    step: Step, have: Mapping[str, float], *, fetched: int = 0, kept: int = 0
) -> None:
    """Refuse a step that needs more than there is, before it takes hours to find out.

    `fetched` bytes of inputs come to the disk; `kept` bytes of its work are there already.
    """
    needs = step.needs
    memory = needs.least_memory_bytes or needs.memory_bytes
    if memory > have["memory_bytes"]:
        raise StepTooLarge(
            f"step {step.name!r} needs about {gib(memory)} of memory, "
            f"this machine has {gib(have['memory_bytes'])}",
            hint="run it on a larger machine, or try all the same with --no-capacity-check",
        )
    disk = needs.disk_bytes + fetched
    if needs.memory_bytes > have["memory_bytes"]:
        disk += needs.spilled_bytes
    disk = max(0, disk - kept)
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


def kernel_killed(root: Path = Path("/")) -> int:
    """Count our processes that the kernel killed for lack of memory.

    Only our control group counts, if there is one: other processes, such as a container at its own
    limit, are unrelated to our steps.
    """
    for file in (*_own_counters(root), root / "proc/vmstat"):
        try:
            lines = [line.split() for line in file.read_text().splitlines()]
        except OSError:
            continue
        found = [words[1] for words in lines if len(words) == 2 and words[0] == "oom_kill"]
        if found and found[0].isdecimal():
            return int(found[0])
    return 0


def _own_counters(root: Path) -> Iterator[Path]:
    """Yield where our control group counts, in version 2 (proc_cgroup(5)) and in version 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, named = line.partition(":")
        controllers, _, group = named.partition(":")
        place = group.lstrip("/")
        if controllers == "memory":
            yield root / "sys/fs/cgroup/memory" / place / "memory.oom_control"
        elif not controllers:
            yield root / "sys/fs/cgroup" / place / "memory.events"


def own_gpus(there: int, environment: Mapping[str, str]) -> tuple[str, ...]:
    """List the GPUs of this machine that we may use, as CUDA_VISIBLE_DEVICES names them.

    Schedulers such as Slurm and Ray give a job some of them through that variable, which
    nvidia-smi does not look at.  Like CUDA we stop at the first name that is none.
    """
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return tuple(str(index) for index in range(there))
    found: list[str] = []
    for name in (part.strip() for part in named.split(",")):
        is_index = name.isascii() and name.isdecimal()
        if name in found or not (
            int(name) < there if is_index else name.startswith(("GPU-", "MIG-"))
        ):
            break
        found.append(name)
    return tuple(found) if there else ()


def visible_gpus(count: int, environment: Mapping[str, str] = os.environ) -> str:
    """Return CUDA_VISIBLE_DEVICES for the first of our GPUs; "", which is none, for 0."""
    return ",".join(own_gpus(_MORE_THAN_ANY, environment)[:count])
