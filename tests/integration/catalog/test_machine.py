"""This machine described, from files and a program that the test makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.catalog.machine import describe_machine, nvidia_driver
from packager.core.units import GIB, MIB
from tests.support.cases import cases
from tests.unit.catalog.test_machine import proc as proc


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
    assert machine.formats == {"bf16", "fp16", "fp32"}
    assert machine.vcpus >= 1


@cases("the_driver_is_what_nvidia_smi_says")
def test_the_driver_is_what_nvidia_smi_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, status: int, driver: str
) -> None:
    nvidia_smi(tmp_path, answer, status)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert nvidia_driver() == driver


def test_nvidia_smi_names_gpus(proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, "NVIDIA A10G, 23028, 8.6\nNVIDIA A10G, 22888, 8.6")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    machine = describe_machine(proc, tmp_path / "cgroup")

    assert (machine.kind, machine.device_name, machine.devices) == ("nvidia", "NVIDIA A10G", 2)
    assert machine.device_bytes == 22888 * MIB
    assert machine.formats == {"bf16", "fp16", "fp32", "w4a16", "int8_w8a8", "fp8_w8a16"}


@cases("gpus_that_cannot_be_described_are_not_planned_for")
def test_gpus_that_cannot_be_described_are_not_planned_for(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    nvidia_smi(tmp_path, answer, status)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert describe_machine(proc, tmp_path / "cgroup").kind == "cpu"
