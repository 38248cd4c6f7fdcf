"""What every executor promises, asked of those that need no engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.cli.plugins.tables import EXECUTORS
from packager.core.ports import Executor
from packager.optimize.steps.dry_run import DryRunExecutor
from packager.optimize.steps.failures import StepTooLarge
from tests.support.tool_steps import executor as local_executor
from tests.support.tool_steps import step
from tests.unit.optimize.steps.ray.test_cluster_values import FACTS
from tests.unit.optimize.steps.ray.test_ray_executor import World

WITHOUT_ENGINE = sorted(set(EXECUTORS) - {"docker"})  # which tests/live has
MEASURES = {"cpus", "gpus", "gpu_bytes", "memory_bytes", "disk_bytes"}
TOOLS = {"local": "demo-tool", "ray": "llmcompressor", "dry_run": "llmcompressor"}


def executor_of(name: str, place: Path) -> Executor:
    if name == "local":
        return local_executor(place)
    if name == "ray":
        return World(place, []).executor
    return DryRunExecutor(lambda name, build: FACTS, lambda: {"cpus": 2.0})


@pytest.mark.parametrize("name", WITHOUT_ENGINE)
def test_a_tool_is_described_and_not_installed(name: str, tmp_path: Path) -> None:
    executor = executor_of(name, tmp_path)

    facts = executor.find_tool(TOOLS[name])

    assert (executor.name, facts.name) == (name, TOOLS[name])
    assert len(facts.worker) == len(facts.requirements) == 64
    assert not (tmp_path / "tools").exists()


@pytest.mark.parametrize("name", WITHOUT_ENGINE)
def test_what_steps_have_is_told_in_the_words_of_the_port(name: str, tmp_path: Path) -> None:
    capacity = executor_of(name, tmp_path).capacity()

    assert set(capacity) <= MEASURES
    assert all(amount >= 0 for amount in capacity.values())


@pytest.mark.parametrize("name", sorted(set(WITHOUT_ENGINE) - {"dry_run"}))
def test_a_step_that_needs_more_than_there_is_is_not_admitted(name: str, tmp_path: Path) -> None:
    executor = executor_of(name, tmp_path)

    executor.admit(step("copy"))
    with pytest.raises(StepTooLarge, match="999 GPUs"):
        executor.admit(step("copy", gpus=999))
