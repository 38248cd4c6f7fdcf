"""This machine described, from files and a program that the test makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.catalog.machine import cpu_formats, describe_machine, gpu_formats, memory_bytes
from packager.core.image import Platform
from packager.core.platforms import platform_for
from packager.core.units import GIB


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
    assert cpu_formats(frozenset({"avx512f", "avx512_vnni"})) == {"fp16", "fp32", "int8_w8a8"}
    assert "bf16" in cpu_formats(frozenset({"amx_bf16"}))


def test_a_machine_with_arm_processors_is_told_by_its_features(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packager.catalog.machine.platform.machine", lambda: "aarch64")
    monkeypatch.setattr("packager.catalog.machine._gpus", list)
    features = "Features\t: fp asimd evtstrm atomics fphp sve i8mm bf16\n"
    (proc / "cpuinfo").write_text(f"processor\t: 0\nBogoMIPS\t: 2100.00\n{features}\n")

    found = describe_machine(proc, tmp_path)

    assert platform_for(found) == Platform("linux", "arm64")
    assert set(found.isa) == {"asimd", "atomics", "bf16", "fphp", "i8mm", "sve"}
    assert "bf16" in found.formats
