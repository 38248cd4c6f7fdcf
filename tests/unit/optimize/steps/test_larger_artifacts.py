"""An artifact for a larger shape, where it will do: foreseen, used, and in the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifact_cache import ArtifactCache, key_of
from packager.core.artifact import Artifacts
from packager.core.recipe import Step, StepOutcome, StepResult
from packager.core.tool import ToolFacts
from packager.optimize.cache.lookups import LastLookups
from packager.optimize.keys.documents import NeuronKey
from packager.optimize.keys.parts import Shape
from packager.optimize.steps.dry_run import DryRunExecutor
from packager.optimize.steps.runner import check_cache
from packager.pipeline.running import with_effective_shape
from tests.support.cache_entries import NEURON, Build
from tests.support.cache_opening import open_local
from tests.support.cases import read_tables
from tests.support.report_values import plan_on
from tests.support.tool_steps import run_step

LARGER = {"max_batch": 16, "max_total_tokens": 8192}


def with_shape(document: NeuronKey, **changes: int) -> NeuronKey:
    shape = Shape(**{**document.shape.model_dump(), **changes})
    return document.model_copy(update={"shape": shape})


def step_of(document: NeuronKey) -> Step:
    return Step(
        name="compile",
        tool="neuron",
        gives="compiled",
        key=document,
        env=document.invocation.env,
        labels={"model": "acme/tiny"},
    )


class Compiler(DryRunExecutor):
    """Leaves files instead of compiling."""

    def run(self, step: Step, into: Path) -> StepResult:
        Build()(into)
        return StepResult()


def tool(name: str, _build: str = "cpu") -> ToolFacts:
    return ToolFacts(name=name, requirements="a" * 64, worker="b" * 64, packages={}, installed=True)


@pytest.fixture
def cache(tmp_path: Path) -> ArtifactCache:
    made = open_local(tmp_path / "cache/artifacts")
    made.get_or_build(with_shape(NEURON, **LARGER), Build(), tmp_path / "larger")
    return made


def run(
    tmp_path: Path, cache: ArtifactCache, *, accept_larger: bool
) -> tuple[StepOutcome, list[str]]:
    said: list[str] = []
    remember = LastLookups(tmp_path / "state").remember
    more = {"warn": said.append, "accept_larger": accept_larger, "remember": remember}
    return run_step(Compiler(tool), cache, tmp_path, step_of(NEURON), **more), said


def test_a_larger_artifact_is_used_only_if_asked_for(tmp_path: Path, cache: ArtifactCache) -> None:
    outcome, _ = run(tmp_path, cache, accept_larger=False)

    assert not outcome.reused
    assert outcome.effective == {}
    assert outcome.key == key_of(NEURON)


def test_a_larger_artifact_says_what_becomes_of_it(tmp_path: Path, cache: ArtifactCache) -> None:
    outcome, said = run(tmp_path, cache, accept_larger=True)

    assert outcome.reused
    assert outcome.effective == {"/shape/max_batch": 16, "/shape/max_total_tokens": 8192}
    assert outcome.key == key_of(with_shape(NEURON, **LARGER))
    assert any("a larger shape is used: /shape/max_batch 16 (requested 8)" in text for text in said)


def test_a_larger_artifact_is_foreseen(cache: ArtifactCache) -> None:
    executor = Compiler(tool)

    exact = check_cache(step_of(NEURON), cache, executor)
    larger = check_cache(step_of(NEURON), cache, executor, accept_larger=True)

    assert (exact.state, exact.differs) == ("miss", ("/shape/max_batch", "/shape/max_total_tokens"))
    assert (larger.state, larger.effective) == (
        "hit",
        {"/shape/max_batch": 16, "/shape/max_total_tokens": 8192},
    )


def test_what_was_compiled_is_what_is_rendered() -> None:
    plan = plan_on("ml.g5.xlarge", max_batch=2, max_input_tokens=512, max_total_tokens=1024)
    outcome = StepOutcome(
        files=(), effective={"/shape/max_batch": 4, "/shape/token_buckets": [1024]}
    )
    artifacts = Artifacts(model=(), draft=(), compiled=(), outcomes={"compile": outcome})

    found = with_effective_shape(plan, artifacts)

    assert (found.shape.max_batch, found.shape.max_total_tokens) == (4, 1024)
    assert with_effective_shape(plan, Artifacts(model=(), draft=(), compiled=())) is plan


def test_the_inputs_of_a_step_are_named_by_group(cache: ArtifactCache) -> None:
    inputs = check_cache(step_of(NEURON), cache, Compiler(tool)).inputs

    assert inputs["graph"] == ("architecture", "code", "plugins")
    assert "max_batch" in inputs["shape"]
    assert inputs["toolchain"] == ("packages", "environment", "image", "worker")
    assert "kind" not in inputs


def test_a_look_up_is_noted_with_its_neighbours(tmp_path: Path, cache: ArtifactCache) -> None:
    run(tmp_path, cache, accept_larger=False)

    [noted] = LastLookups(tmp_path / "state").last()

    assert (noted["step"], noted["hit"], noted["key"]) == ("compile", False, key_of(NEURON))
    assert noted["document"]["shape"]["max_batch"] == 8
    differences = noted["nearest"][0]["differences"]
    assert [one["pointer"] for one in differences] == read_tables(__file__)["pointers"]


def test_what_cannot_be_noted_stops_nobody(tmp_path: Path, cache: ArtifactCache) -> None:
    (tmp_path / "state").write_text("no directory")

    outcome, _ = run(tmp_path, cache, accept_larger=True)

    assert outcome.reused
    assert LastLookups(tmp_path / "state").last() == ()
