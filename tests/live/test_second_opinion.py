"""aiconfigurator itself, in the environment that `packager tools install` makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.cli.wiring.opinions import opinion_executor
from packager.cli.wiring.settings import Settings
from packager.cli.wiring.techniques import environments_for
from packager.core.image import Inline
from packager.core.model import ModelFile
from packager.core.plan import Plan
from packager.core.ports import Executor
from packager.core.workload import WORKLOADS
from packager.estimate.performance.ask_opinion import second_opinion
from packager.estimate.performance.opinion import Opinion
from packager.optimize.steps.workspace import Workspace
from tests.conftest import unavailable
from tests.support import zoo
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, model_of, plan_of

pytestmark = pytest.mark.live

cases = cases_of(__file__)
QUESTIONS = WORKLOADS["questions"]


@pytest.fixture(scope="module")
def executor() -> Executor:
    settings = Settings()
    if not environments_for(settings).facts("aiconfigurator").installed:
        unavailable("the tool aiconfigurator (0.9 GB)")
    return opinion_executor(settings)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path) as found:
        yield found


def opinion_of(
    plan: Plan, config: dict[str, Any], executor: Executor, workspace: Workspace
) -> Opinion:
    file = ModelFile(path="config.json", role="config", content=Inline(json.dumps(config).encode()))
    model = zoo.config_only(config)
    model = type(model)(ref=model.ref, files=(file,), config=config, tensors=model.tensors)
    return second_opinion(plan, model, QUESTIONS, (1, 8, 32), executor, workspace)


def test_llama_8b_on_an_h100_gets_times_of_the_right_size(
    executor: Executor, workspace: Workspace
) -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "ml.p5.4xlarge", family="vllm")

    opinion = opinion_of(plan, LLAMA_3_8B, executor, workspace)

    assert opinion.source == "aiconfigurator 0.12.0"
    assert opinion.engine.startswith("vllm 0.")
    times = [point.tpot_s for point in opinion.points]
    # 16 GB of weights at 3.35 TB/s take 4.8 ms; measured on vLLM are 6 to 8 ms at one request.
    assert times[0] is not None and 0.0048 < times[0] < 0.009
    assert None not in times and times == sorted(times, key=lambda value: value or 0.0)
    rates = [point.output_tokens_s or 0.0 for point in opinion.points]
    assert rates == sorted(rates) and 100 < rates[0] < 250


@cases("untold")
def test_what_it_cannot_tell_is_an_answer(
    executor: Executor, workspace: Workspace, instance: str, architecture: str, reason: str
) -> None:
    plan = plan_of(model_of(LLAMA_3_8B), instance, family="vllm", max_total_tokens=2048)
    config = {**LLAMA_3_8B, "architectures": [architecture]}

    opinion = opinion_of(plan, config, executor, workspace)

    assert opinion.points == ()
    assert reason in opinion.reason
    assert "/" not in opinion.reason.partition("Supported")[0]
