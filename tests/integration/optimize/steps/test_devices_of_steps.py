"""What a worker sees of GPUs and threads, and how a container and a fleet are asked for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.addons.fleet.fleets import local as fleet
from packager.addons.fleet.fleets.ray import _options
from packager.core.instance import Instance
from packager.core.recipe import Step
from packager.optimize.steps.docker import _gpu_request
from packager.optimize.steps.tools.environments import Environments
from tests.support.cases import cases
from tests.support.headers import LOCAL_CPU
from tests.support.tool_steps import executor, step
from tests.support.warmup_plans import job


def seen_by(asked: Step, tmp_path: Path, into: Path, tools: Environments) -> dict[str, str]:
    unchecked = executor(tmp_path, tools=tools)
    unchecked._check = False  # as --no-capacity-check has it: the GPUs are not here
    unchecked.run(asked, into)
    seen: dict[str, str] = json.loads((into / "env.json").read_text())
    return {name: seen[name] for name in seen if name.startswith(("CUDA", "OMP"))}


@cases("seen")
def test_a_worker_sees_the_devices_that_it_was_given(
    asked: dict[str, Any],
    seen: dict[str, str],
    tmp_path: Path,
    into: Path,
    tools: Environments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    monkeypatch.setenv("OMP_NUM_THREADS", "99")

    assert seen_by(step("environment", **asked), tmp_path, into, tools) == seen


def test_a_container_gets_any_gpus_or_those_that_are_ours() -> None:
    anyone, ours = _gpu_request(2, {}), _gpu_request(2, {"CUDA_VISIBLE_DEVICES": "4,6,7"})

    assert (anyone["Count"], anyone["DeviceIDs"]) == (2, [])
    assert (ours["Count"], ours["DeviceIDs"]) == (0, ["4", "6"])
    assert anyone["Capabilities"] == ours["Capabilities"] == [["gpu"]]


def test_ray_is_asked_for_gpus_of_any_model_where_the_result_is_for_none() -> None:
    """A resource of no name is on no node: the job was never placed."""
    needs = {"accelerator": "nvidia", "devices": 1}
    of_any, of_one = (
        _options(job(0, resources={**needs, "device": device})) for device in ("", "A10G")
    )

    assert (of_any["num_gpus"], "resources" in of_any) == (1, False)
    assert of_one["resources"] == {"accelerator_type:A10G": 0.001}


GPUS = replace(
    LOCAL_CPU, kind="nvidia", devices=3, device_name="NVIDIA A10G", device_bytes=24 * 10**9, vcpus=8
)


def test_jobs_side_by_side_have_own_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each took the machine's first: two of three lay idle, and one ran out of memory."""
    machine: Instance = GPUS
    program = tmp_path / "python"
    program.write_text(
        '#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES"\nwhile [ ! -e go ]; do sleep 0.02; done\n'
    )
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fleet, "describe_machine", lambda: machine)
    monkeypatch.setattr(fleet.sys, "executable", str(program))
    made = fleet.LocalFleet(tmp_path / "plan", environment={}, log_dir=tmp_path / "logs")
    needs = {"accelerator": "nvidia", "devices": 1}

    for index in range(4):
        made.submit(job(index, resources=needs))
    (tmp_path / "go").touch()
    ended: dict[int, str] = {}
    while len(ended) < 4:
        ended |= {one.index: one.said.strip() for one in made.poll(30)}
    made.close()

    assert [ended[index] for index in range(3)] == ["0", "1", "2"]
    assert ended[3] in ("0", "1", "2")  # whose job has ended
