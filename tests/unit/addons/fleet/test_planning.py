"""Time, price and machine of a job, by what it was planned for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from packager.addons.fleet.planning import _PlanBuilder, pinned
from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import find_instance, instances
from packager.core.devices import GpuUse
from packager.core.facts import Facts
from packager.core.instance import Instance
from packager.core.recipe import Recipe, Step
from packager.core.references import DirectoryReference
from packager.core.warmup import Resources
from packager.engines.vllm.family import VllmFamily
from packager.estimate.performance.amounts import TextAmounts
from packager.estimate.performance.job import MachineOffer, Market
from packager.models.architectures.profile import make_profile
from packager.pipeline.planning.services import PlannerServices
from packager.pipeline.stages import Planned
from tests.support.cases import cases
from tests.support.headers import LLAMA_3_8B, facts_of, model_of, plan_of
from tests.unit.estimate.performance.test_effort import HERE, step_of

PLAN = plan_of(model_of(LLAMA_3_8B), "ml.g5.12xlarge")
EIGHT_B = make_profile(model_of(LLAMA_3_8B))[0]
AWQ = replace(
    step_of(EIGHT_B, TextAmounts(count=256, tokens=256 * 512), "awq"),
    gpu_use=GpuUse(most=1, each_bytes=4 * 10**9),
)


def planned_with(facts: Facts) -> Planned:
    return Planned(
        reference=DirectoryReference.at("m"),
        facts=facts,
        plan=PLAN,
        planning=PlannerServices(family=VllmFamily()),
        recipe=Recipe(),
    )


def making(host: Instance | None = None) -> _PlanBuilder:
    market = Market(here=HERE, instances=instances(), accelerator_of=accelerator_of)
    return _PlanBuilder(market=lambda: market, host=host)


def place(step: Step, made: _PlanBuilder, devices: int = 0) -> MachineOffer:
    return made._place(step, PLAN, Resources(devices=devices))


def test_a_job_planned_for_a_processor_is_not_timed_on_a_gpu_it_would_not_use() -> None:
    made = making()
    found = place(AWQ, made)

    assert (found.instance.kind, found.gpus) == ("cpu", 0)
    [note] = made.notes
    assert note.startswith("quantize with llmcompressor/awq would take ")
    assert note.endswith("add `gpus = 1` to the grid")


def test_a_job_that_has_its_gpu_is_timed_where_none_idles() -> None:
    made = making()
    found = place(replace(AWQ, gpus=1, env={}), made, devices=1)

    assert (found.instance.kind, found.instance.devices) == ("nvidia", 1)
    assert found.instance.name != PLAN.instance.name
    assert not made.notes


def test_a_result_for_a_device_is_timed_on_the_requests_machine() -> None:
    compiling = Step(name="compile", tool="tensorrt-llm", gives="compiled", gpus=4, gpu="A10G")
    found = place(compiling, making(), devices=4)

    assert found.instance.name == "ml.g5.12xlarge"
    assert (found.timing.seconds, found.timing.origin, found.usd) == (0.0, "", None)


def test_the_grids_host_is_taken_for_work_without_an_accelerator() -> None:
    host = find_instance("ml.m7i.8xlarge")
    assert place(AWQ, making(host)).instance == host


def test_where_no_machine_holds_it_the_time_is_that_of_this_one() -> None:
    needs = replace(AWQ.needs, memory_bytes=10**15)
    found = place(replace(AWQ, needs=needs), making())

    assert found.instance.name == "local"
    assert found.timing.seconds > 3600


@cases("a_job_elsewhere_finds_the_file_of_requests")
def test_a_job_elsewhere_finds_the_file_of_requests(
    workload: str | None, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory may be called as a workload is: the name wins, here as there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"input_length": 5, "output_length": 5}\n')
    (tmp_path / "chat").mkdir()
    facts = facts_of(model_of(LLAMA_3_8B), "ml.g5.xlarge", workload=workload)

    found = pinned(
        facts.request,
        planned_with(facts),
    )

    assert found.workload == (str(tmp_path / "log.jsonl") if whole else workload)


@cases("a_job_elsewhere_finds_every_file_that_a_request_names")
def test_a_job_elsewhere_finds_every_file_that_a_request_names(
    asked: dict[str, str], job_has: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "default").mkdir()
    facts = facts_of(model_of(LLAMA_3_8B), "ml.g5.xlarge", **asked)

    found = pinned(
        facts.request,
        planned_with(facts),
    )

    for name, text in job_has.items():
        assert getattr(found, name) == text.replace("{here}", str(tmp_path))
