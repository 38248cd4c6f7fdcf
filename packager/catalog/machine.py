"""This machine as an instance, for `--instance local`.

What is found here decides whether a plan fits; it must not reach a rendered
setting.  The same build on a machine with more cores or more memory gives
the same image.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

from packager.core.instance import LOCAL, Instance, gpu_formats
from packager.core.units import MIB

GPU_QUERY = (
    "nvidia-smi",
    "--query-gpu=name,memory.total,compute_cap",
    "--format=csv,noheader,nounits",
)

USED_QUERY = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
DRIVER_QUERY = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")

# CPU flags that give a format its own instructions; bf16 is converted by software elsewhere.
# Which formats an engine has kernels for is another question: `core/processors.py`.
CPU_FORMATS = {
    "bf16": {"avx512_bf16", "amx_bf16", "bf16"},
    "int8_w8a8": {"avx512_vnni", "avx_vnni", "amx_int8"},
}

# Instruction sets that compilers make use of by themselves when told to compile for this
# machine; the same as in containers/serving/vllm/compiled_cache.py, which compares them.
ISA = re.compile(
    r"avx\w*|amx\w*|sse4\w*|ssse3|fma|f16c|bmi[12]|abm|adx|movbe|popcnt"  # x86
    r"|asimd\w*|sve\w*|bf16|i8mm|fphp|atomics|dotprod|flagm\w*"  # Arm
)


def describe_machine(
    proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
) -> Instance:
    """Describe the GPUs of this machine, or its processor when it has none."""
    host_bytes = memory_bytes(proc, cgroups)
    vcpus = len(os.sched_getaffinity(0))
    gpus = _gpus()
    model, flags = _processor(proc)
    isa = tuple(sorted(flag for flag in flags if ISA.fullmatch(flag)))
    if gpus:
        # Tensor parallelism is as weak as its weakest device.
        capability = min(gpu[2] for gpu in gpus)
        return Instance(
            name=LOCAL,
            kind="nvidia",
            device_name=gpus[0][0],
            devices=len(gpus),
            device_bytes=min(gpu[1] for gpu in gpus),
            host_bytes=host_bytes,
            vcpus=vcpus,
            compute_capability=capability,
            formats=gpu_formats(capability),
            source="nvidia-smi",
            machine=platform.machine(),
            isa=isa,
        )
    return Instance(
        name=LOCAL,
        kind="cpu",
        device_name=model,
        devices=1,
        device_bytes=host_bytes,
        host_bytes=host_bytes,
        vcpus=vcpus,
        formats=cpu_formats(flags),
        source="/proc/cpuinfo",
        machine=platform.machine(),
        isa=isa,
    )


def memory_bytes(proc: Path, cgroups: Path) -> int:
    """Return the memory in bytes that this process may use: the machine's, or a cgroup's limit."""
    total = next(
        int(line.split()[1]) * 1024
        for line in (proc / "meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    return min([total, *_limits(proc, cgroups)])


def available_bytes(proc: Path = Path("/proc")) -> int | None:
    """Return the memory available without swapping; None if the kernel does not state it."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        return next(int(one.split()[1]) * 1024 for one in lines if one.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def used_gpu_bytes() -> int | None:
    """Return the memory in use of all GPUs together; None where there are none."""
    try:
        used = [int(line) for line in _answer(USED_QUERY)]
    except ValueError:
        return None
    return sum(used) * MIB if used else None


def nvidia_driver() -> str:
    """Return the version of the NVIDIA driver; "" where there is none that answers."""
    return next(iter(_answer(DRIVER_QUERY)), "").strip()


def nvidia_devices() -> int:
    """Return how many NVIDIA GPUs the driver has; 0 without one that answers."""
    return len(_answer(DRIVER_QUERY))  # a line for each


def cpu_formats(flags: frozenset[str]) -> frozenset[str]:
    """Return the formats that a processor with these flags computes with natively."""
    return frozenset(
        {"fp32", "fp16"} | {word for word, any_of in CPU_FORMATS.items() if any_of & flags}
    )


def _answer(query: tuple[str, ...]) -> list[str]:
    """Return the lines that a query of `nvidia-smi` prints; [] where it fails."""
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=30, check=True, encoding="utf-8"
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line for line in answer.splitlines() if line.strip()]


def _gpus() -> list[tuple[str, int, float]]:
    gpus = []
    for line in _answer(GPU_QUERY):  # none without a driver: no GPU is usable here
        fields = [field.strip() for field in line.rsplit(",", 2)]
        try:
            gpus.append((fields[0], int(fields[1]) * MIB, float(fields[2])))
        except (IndexError, ValueError):
            continue  # "[N/A]": a device the driver cannot describe cannot be planned for
    return gpus


def _processor(proc: Path) -> tuple[str, frozenset[str]]:
    fields: dict[str, str] = {}
    for line in (proc / "cpuinfo").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip().lower(), value.strip())
    flags = fields.get("flags") or fields.get("features", "")  # x86, then Arm
    return fields.get("model name", "CPU"), frozenset(flags.split())


def _limits(proc: Path, cgroups: Path) -> list[int]:
    """Collect every memory limit above this process, in cgroup v1 and v2 trees."""
    membership = proc / "self" / "cgroup"
    limits: list[int] = []
    for line in membership.read_text().splitlines() if membership.exists() else ():
        _, controllers, path = line.split(":", 2)
        here = Path(path.lstrip("/"))
        for directory in (here, *here.parents):
            if controllers == "":
                limits += _limit(cgroups / directory / "memory.max")
                limits += _limit(cgroups / "unified" / directory / "memory.max")
            elif "memory" in controllers.split(","):
                limits += _limit(cgroups / "memory" / directory / "memory.limit_in_bytes")
    return limits


def _limit(file: Path) -> list[int]:
    try:
        return [int(file.read_text())]
    except (OSError, ValueError):
        return []  # no such cgroup in this namespace, or "max"
