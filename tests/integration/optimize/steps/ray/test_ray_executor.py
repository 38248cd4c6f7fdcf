"""Steps on a cluster: what is tried again, what is handed on, what Ray is told. No cluster here."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager import __version__
from packager.optimize.steps.ray.probe import make_probe
from tests.integration.catalog.test_machine import nvidia_smi
from tests.unit.optimize.steps.ray.test_ray_executor import Run
from tests.unit.optimize.steps.ray.test_ray_executor import world as world


def test_gpu_memory_of_a_node(world: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {"gpus": {"CPU": 8.0, "memory": 2.0**36, "GPU": 4.0}}
    node = world(nodes=nodes)
    node.ray.gpu_bytes = 24 * 2**30

    assert node.executor.capacity()["gpu_bytes"] == 24 * 2**30

    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "without-nvidia-smi"))
        assert make_probe()() == (__version__, 0)
    nvidia_smi(tmp_path, "23028\n81559")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert make_probe()() == (__version__, 23028 * 2**20)
