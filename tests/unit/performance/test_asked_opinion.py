"""Asking for a second opinion: what is run, and what ends it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.image import Inline
from packager.core.model import ModelFile
from packager.core.recipe import Step, StepResult
from packager.core.tool import Build, ToolFacts
from packager.core.workload import WORKLOADS
from packager.errors import StepFailed
from packager.performance.ask_opinion import ToolNotInstalled, check_installed, second_opinion
from packager.performance.opinion import Opinion
from tests.support.headers import LLAMA_3_8B, model_of, plan_of
from tests.support.report_values import LLAMA_8B

PLAN = plan_of(model_of(LLAMA_3_8B), "ml.p5.4xlarge", family="vllm")

CONFIG = ModelFile(path="config.json", role="config", content=Inline(b"{}"))


class Executor:
    """Runs nothing: answers as it was told."""

    name = "told"

    def __init__(self, *, installed: bool = True, details: Mapping[str, Any] | None = None) -> None:
        self._installed = installed
        self._details = details or {}
        self.ran: list[Step] = []

    def find_tool(self, name: str, build: Build = "cpu") -> ToolFacts:
        return ToolFacts(
            name=name, worker="", requirements="", packages={}, installed=self._installed
        )

    def prepare(self, name: str, build: Build = "cpu") -> None:
        raise AssertionError("a plan installs nothing")

    def admit(self, step: Step) -> None:
        raise AssertionError("the executor asks itself")

    def run(self, step: Step, into: Path) -> StepResult:
        self.ran.append(step)
        return StepResult(details=self._details, versions={"aiconfigurator": "0.12.0"})

    def capacity(self) -> Mapping[str, float]:
        return {}


class Place:
    def __init__(self, root: Path) -> None:
        self._root = root

    def directory(self, name: str) -> Path:
        return self._root


def ask(executor: Executor, place: Path, instance: str = "ml.p5.4xlarge") -> Opinion:
    plan = PLAN if instance == "ml.p5.4xlarge" else plan_of(LLAMA_8B, instance, family="vllm")
    model = replace(model_of(LLAMA_3_8B), files=(CONFIG,))
    return second_opinion(
        plan, model, WORKLOADS["questions"], (4,), executor, nullcontext(Place(place))
    )


def test_a_tool_that_is_not_installed_is_named_before_anything_is_planned() -> None:
    with pytest.raises(ToolNotInstalled) as refused:
        check_installed(Executor(installed=False))

    assert refused.value.hint == "packager tools install aiconfigurator"
    check_installed(Executor())


def test_the_answer_of_the_tool_is_the_opinion(tmp_path: Path) -> None:
    point = {"concurrency": 4, "tpot_s": 0.01, "ttft_s": 0.05, "output_tokens_s": 380.0}
    executor = Executor(details={"points": [point], "engine_version": "0.24.0", "modes": {}})

    opinion = ask(executor, tmp_path)

    assert [step.tool for step in executor.ran] == ["aiconfigurator"]
    assert (opinion.source, opinion.points[0].tpot_s) == ("aiconfigurator 0.12.0", 0.01)


def test_a_gpu_that_it_does_not_know_starts_no_tool(tmp_path: Path) -> None:
    executor = Executor()

    opinion = ask(executor, tmp_path, "ml.g5.xlarge")

    assert executor.ran == []
    assert opinion.reason == "it does not support A10G"


def test_an_answer_that_is_none_is_a_failed_step(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="something else than an opinion: points is missing"):
        ask(Executor(details={}), tmp_path)
