"""Asking for a second opinion: what is run, and what ends it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import StepFailed
from packager.core.image import Inline
from packager.core.model import ModelFile
from packager.core.recipe import StepResult
from packager.core.workload import WORKLOADS
from packager.estimate.performance.ask_opinion import (
    ToolNotInstalled,
    check_installed,
    second_opinion,
)
from packager.estimate.performance.opinion import Opinion
from tests.support.headers import LLAMA_3_8B, model_of, plan_of
from tests.support.report_values import LLAMA_8B
from tests.support.told_executor import ToldExecutor

PLAN = plan_of(model_of(LLAMA_3_8B), "ml.p5.4xlarge", family="vllm")

CONFIG = ModelFile(path="config.json", role="config", content=Inline(b"{}"))


def executor(*, installed: bool = True, **details: Any) -> ToldExecutor:
    result = StepResult(details=details, versions={"aiconfigurator": "0.12.0"})
    return ToldExecutor(lambda step: result, installed=installed)


class Place:
    def __init__(self, root: Path) -> None:
        self._root = root

    def directory(self, name: str) -> Path:
        return self._root


def ask(told: ToldExecutor, place: Path, instance: str = "ml.p5.4xlarge") -> Opinion:
    plan = PLAN if instance == "ml.p5.4xlarge" else plan_of(LLAMA_8B, instance, family="vllm")
    model = replace(model_of(LLAMA_3_8B), files=(CONFIG,))
    return second_opinion(
        plan, model, WORKLOADS["questions"], (4,), told, nullcontext(Place(place))
    )


def test_a_tool_that_is_not_installed_is_named_before_anything_is_planned() -> None:
    with pytest.raises(ToolNotInstalled) as refused:
        check_installed(executor(installed=False))

    assert refused.value.hint == "packager tools install aiconfigurator"
    check_installed(executor())


def test_the_answer_of_the_tool_is_the_opinion(tmp_path: Path) -> None:
    point = {"concurrency": 4, "tpot_s": 0.01, "ttft_s": 0.05, "output_tokens_s": 380.0}
    told = executor(points=[point], engine_version="0.24.0", modes={})

    opinion = ask(told, tmp_path)

    assert [step.tool for step in told.ran] == ["aiconfigurator"]
    assert (opinion.source, opinion.points[0].tpot_s) == ("aiconfigurator 0.12.0", 0.01)


def test_a_gpu_that_it_does_not_know_starts_no_tool(tmp_path: Path) -> None:
    told = executor()

    opinion = ask(told, tmp_path, "ml.g5.xlarge")

    assert told.ran == []
    assert opinion.reason == "it does not support A10G"


def test_an_answer_that_is_none_is_a_failed_step(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="something else than an opinion: points is missing"):
        ask(executor(), tmp_path)
