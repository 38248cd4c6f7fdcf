"""This machine described, from files and a program that the test makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.adapters.machine import (
    cpu_formats,
    describe_machine,
    gpu_formats,
    memory_bytes,
    nvidia_driver,
)
from packager.core.units import GIB, MIB


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:       67108864 kB\nMemFree: 1 kB\n")
    (proc / "cpuinfo").write_text(
        "processor : 0\nmodel name : Some CPU\nflags : fpu avx512f avx512_bf16\n\n"
        "processor : 1\nmodel name : Some CPU\nflags : fpu avx512f avx512_bf16\n"
    )
    (proc / "self" / "cgroup").write_text("0::/pod/container\n")
    return proc


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def nvidia_smi(directory: Path, answer: str, status: int = 0) -> None:
    program = directory / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'EOF'\n{answer}\nEOF\nexit {status}\n")
    program.chmod(0o755)


@pytest.mark.usefixtures("no_gpu")
def test_a_machine_without_gpus_is_its_processor(proc: Path, tmp_path: Path) -> None:
    machine = describe_machine(proc, tmp_path / "cgroup")

    assert (machine.name, machine.kind, machine.device_name) == ("local", "cpu", "Some CPU")
    assert (machine.devices, machine.device_bytes) == (1, 64 * GIB)
    assert machine.formats == {"bf16", "fp16", "fp32", "w4a16"}
    assert machine.vcpus >= 1


@pytest.mark.parametrize(
    ("answer", "status", "driver"),
    [
        ("550.163.01\n550.163.01", 0, "550.163.01"),
        ("", 0, ""),
        ("NVIDIA-SMI has failed", 9, ""),
    ],
    ids=["two-gpus", "no-gpu", "no-driver"],
)
def test_the_driver_is_what_nvidia_smi_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, status: int, driver: str
) -> None:
    nvidia_smi(tmp_path, answer, status)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert nvidia_driver() == driver


def test_gpus_are_what_nvidia_smi_says(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(tmp_path, "NVIDIA A10G, 23028, 8.6\nNVIDIA A10G, 22888, 8.6")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    machine = describe_machine(proc, tmp_path / "cgroup")

    assert (machine.kind, machine.device_name, machine.devices) == ("nvidia", "NVIDIA A10G", 2)
    assert machine.device_bytes == 22888 * MIB
    assert machine.formats == {"bf16", "fp16", "fp32", "w4a16", "int8_w8a8", "fp8_w8a16"}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("NVIDIA-SMI has failed because it could not talk to the driver", 9),
        ("GPU, [N/A], [N/A]", 0),
    ],
    ids=["no driver", "not described"],
)
def test_gpus_that_cannot_be_described_are_not_planned_for(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    nvidia_smi(tmp_path, answer, status)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert describe_machine(proc, tmp_path / "cgroup").kind == "cpu"


def test_the_tightest_limit_above_the_process_counts(proc: Path, tmp_path: Path) -> None:
    cgroups = tmp_path / "cgroup"
    (cgroups / "pod" / "container").mkdir(parents=True)
    (cgroups / "pod" / "memory.max").write_text(f"{8 * GIB}\n")
    (cgroups / "pod" / "container" / "memory.max").write_text("max\n")

    assert memory_bytes(proc, cgroups) == 8 * GIB


def test_a_limit_of_the_first_cgroup_version_counts(proc: Path, tmp_path: Path) -> None:
    (proc / "self" / "cgroup").write_text("5:cpu,cpuacct:/\n4:memory:/not/visible/here\n")
    cgroups = tmp_path / "cgroup"
    (cgroups / "memory").mkdir(parents=True)
    (cgroups / "memory" / "memory.limit_in_bytes").write_text(f"{4 * GIB}\n")

    assert memory_bytes(proc, cgroups) == 4 * GIB


def test_a_limit_above_the_machines_memory_is_no_limit(proc: Path, tmp_path: Path) -> None:
    cgroups = tmp_path / "cgroup"
    (cgroups / "pod").mkdir(parents=True)
    (cgroups / "pod" / "memory.max").write_text("9223372036854771712\n")

    assert memory_bytes(proc, cgroups) == 64 * GIB


def test_formats_follow_the_hardware() -> None:
    assert gpu_formats(7.0) == {"fp16", "fp32"}
    assert gpu_formats(7.5) == {"fp16", "fp32", "int8_w8a8", "w4a16", "fp8_w8a16"}
    assert "nvfp4_w4a4" in gpu_formats(12.0)
    assert cpu_formats(frozenset({"avx2"})) == {"fp16", "fp32"}
    assert "bf16" in cpu_formats(frozenset({"amx_bf16"}))
