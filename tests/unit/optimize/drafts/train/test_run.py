"""Training a head from end to end, with a worker that writes heads without any library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from packager.cli.wiring.steps import result_checks
from packager.core.errors import PlanRejected, StepFailed
from packager.core.events import ignore
from packager.core.model import ModelFile, ModelFiles
from packager.core.recipe import CacheStatus, Step, StepOutcome
from packager.core.tool import Build, ToolFacts
from packager.core.training import HeadTraining, TrainingTexts
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.optimize.drafts.train.head_files import read_head, read_training, write_head
from packager.optimize.drafts.train.run import HeadServices, train_head
from packager.optimize.steps.results import read_result
from packager.optimize.steps.services import RunStep
from packager.pipeline.services import BuildServices
from tests.support.cases import as_type, read_tables
from tests.support.commandline import TINY
from tests.support.doubles.models import write_safetensors
from tests.unit.core.test_training import FIGURES

TEXTS = as_type(read_tables(__file__)["texts"], TrainingTexts)
HIDDEN, VOCABULARY = 256, 2048  # of examples/tiny-llama
MEDUSA = HeadTraining(method="medusa", speculative_tokens=2)


def medusa_head(place: Path, hidden: int = HIDDEN) -> None:
    shapes = {
        name: ("BF16", shape)
        for head in range(2)
        for name, shape in (
            (f"blocks.{head}.layers.0.weight", (hidden, hidden)),
            (f"lm_heads.{head}.weight", (VOCABULARY, hidden)),
        )
    }
    write_safetensors(place / "model.safetensors", shapes)
    config = {"model_type": "medusa", "num_heads": 2, "num_hidden_layers": 1}
    (place / "config.json").write_text(json.dumps(config))
    (place / "training.json").write_text(json.dumps(FIGURES))


@dataclass
class Worker:
    """Runs steps; keeps what it was asked for."""

    root: Path
    hidden: int = HIDDEN
    steps: list[Step] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)

    def run(self, step: Step) -> StepOutcome:
        self.steps.append(step)
        place = self.root / step.name
        place.mkdir()
        if step.gives == "answers":
            for name in ("train.jsonl", "held-out.jsonl"):
                (place / name).write_text('{"prompt": "one", "completion": "two"}\n')
        else:
            medusa_head(place, self.hidden)
        return StepOutcome(files=read_result(step, place, {}, result_checks()), key="f" * 64)

    def find_tool(self, name: str, build: Build = "cpu") -> ToolFacts:
        versions = {"torch": "2.13.0" if name in self.prepared else "2.13.0+cpu"}
        return ToolFacts(name=name, worker="a" * 64, requirements="b" * 64, packages=versions)

    def prepare(self, name: str, build: Build = "cpu") -> None:
        self.prepared.append(name)

    def admit(self, step: Step) -> None:
        """There is room for every step."""


def tools(worker: Worker) -> BuildServices:
    @contextmanager
    def run_steps() -> Iterator[RunStep]:
        yield worker.run

    def pin(model: ModelFiles) -> ModelFiles:
        return replace(model, files=tuple(map(pinned, model.files)))

    def pinned(file: ModelFile) -> ModelFile:
        return replace(file, sha256=file.sha256 or "c" * 64)

    given: dict[str, Any] = {
        "parse_model_reference": parse_model_reference,
        "find_model": LocalSource().facts,
        "find_draft": LocalSource(is_draft=True).facts,
        "executor": worker,
        "run_steps": run_steps,
        "check_cache": lambda step: CacheStatus(step=step.name, tool=step.tool, state="miss"),
        "pin_files": pin,
        "read_head_values": lambda *_: None,
        "on_event": ignore,
    }
    names = BuildServices.__dataclass_fields__
    return cast("BuildServices", BuildServices(**{name: given.get(name) for name in names}))


def head_services(output: Path) -> HeadServices:
    return HeadServices(
        read_report=read_training,
        read_head=read_head,
        write=lambda files: write_head(files, output),
    )


def test_the_model_answers_and_the_head_learns_from_its_answers(tmp_path: Path) -> None:
    worker, output = Worker(tmp_path), tmp_path / "head"

    done = train_head(str(TINY), TEXTS, MEDUSA, tools(worker), head_services(output))

    answers, training = worker.steps
    assert (answers.name, training.name) == ("answers", "train")
    taught = training.inputs["samples"].files
    assert {Path(file.content.path).parent.name for file in taught} == {"answers"}  # type: ignore[union-attr]
    assert worker.prepared == ["draft-heads", "draft-heads"]
    assert training.key is not None
    assert training.key.toolchain.packages[1].version == "2.13.0", "the one that was installed"
    assert done.report.expected_length == 1.75
    assert sorted(path.name for path in output.iterdir()) == read_tables(__file__)["written_files"]
    LocalSource(is_draft=True).facts(parse_model_reference(str(output)))


def test_answers_of_the_data_are_taken_as_they_are(tmp_path: Path) -> None:
    worker = Worker(tmp_path)

    train_head(
        str(TINY),
        TEXTS,
        replace(MEDUSA, answers="data"),
        tools(worker),
        head_services(tmp_path / "head"),
    )

    assert [step.name for step in worker.steps] == ["train"]


def test_a_head_that_does_not_fit_goes_nowhere(tmp_path: Path) -> None:
    worker = Worker(tmp_path, hidden=64)

    with pytest.raises(StepFailed, match="does not fit the model"):
        train_head(str(TINY), TEXTS, MEDUSA, tools(worker), head_services(tmp_path / "head"))

    assert not (tmp_path / "head").exists()


def test_what_cannot_be_is_refused_before_anything_runs(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    asked = HeadTraining(method="eagle3", aux_layers=(1, 2, 9))

    with pytest.raises(PlanRejected, match="layers"):
        train_head(str(TINY), TEXTS, asked, tools(worker), head_services(tmp_path / "head"))

    assert (worker.steps, worker.prepared) == ([], [])


def test_a_head_of_another_size_is_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    medusa_head(tmp_path / "given", hidden=64)
    worker = Worker(tmp_path)

    with pytest.raises(PlanRejected):
        train_head(
            str(TINY),
            TEXTS,
            MEDUSA,
            tools(worker),
            head_services(tmp_path / "head"),
            continue_from=str(tmp_path / "given"),
        )

    assert worker.steps == []


def test_a_head_is_trained_on(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    medusa_head(tmp_path / "given")
    worker = Worker(tmp_path)

    train_head(
        str(TINY),
        TEXTS,
        HeadTraining(method="medusa", answers="data"),
        tools(worker),
        head_services(tmp_path / "head"),
        continue_from=str(tmp_path / "given"),
    )

    (training,) = worker.steps
    assert training.parameters["speculative_tokens"] == 2, "as many as it has"
    assert {file.path for file in training.inputs["head"].files} == {
        "config.json",
        "model.safetensors",
    }
