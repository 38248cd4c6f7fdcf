"""A worker's result names exactly the files that it left: nothing else is published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from packager.core.errors import StepFailed
from packager.core.events import ignore
from packager.core.image import FileRange
from packager.core.model import ModelFile
from packager.core.recipe import StepResult
from packager.optimize.drafts.train.head_files import read_training
from packager.optimize.evaluate.quality import read_quality
from packager.optimize.steps.failures import StepBroken
from packager.optimize.steps.protocol import Listener, judge
from tests.support.cases import cases
from tests.support.tool_steps import step


def judged(root: Path, answer: bytes, left: Sequence[str] = ()) -> StepResult:
    """Judge a run that ended well with this answer and left these files."""
    into, place, log = root / "output", root / "result.json", root / "log"
    into.mkdir()
    for name in left:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_text("content")
    place.write_bytes(answer)
    log.touch()
    run = step("copy")
    with log.open("ab") as sink:
        return judge(run, 0, place, into, Listener(run, sink, ignore), log, oom=False)


def naming(*files: str) -> bytes:
    return json.dumps({"protocol": 1, "files": files}).encode()


def test_what_is_left_and_named_is_the_result(tmp_path: Path) -> None:
    files = ("config.json", "sub/model.safetensors")

    assert judged(tmp_path, naming(*files), files) == StepResult()


@cases("other_files")
def test_other_files_than_the_result_names_are_no_result(
    tmp_path: Path, left: tuple[str, ...], named: tuple[str, ...], odd: str
) -> None:
    with pytest.raises(StepBroken, match=f"left other files than its result names: {odd}"):
        judged(tmp_path, naming(*named), left)


@cases("hostile")
def test_a_hostile_result_breaks_the_step_and_nothing_else(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(StepBroken, match="cannot be read") as broken:
        judged(tmp_path, data)

    assert len(broken.value.message) < 500
    assert "\n" not in broken.value.message


@cases("hostile", only=lambda row: row["data"] != "")
def test_a_hostile_line_of_a_worker_goes_to_the_log(data: bytes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    events: list[object] = []
    with log.open("ab") as sink:
        listener = Listener(step("copy"), sink, events.append)

        listener.feed(data.replace(b"protocol", b"event") + b"\n")
        listener.feed(b'{"event": "alive"}\n')

    assert (listener.stray, events) == (1, [])
    assert log.read_bytes() != b""


def test_a_figure_of_a_worker_may_be_no_number(tmp_path: Path) -> None:
    answer = b'{"protocol": 1, "files": ["a"], "details": {"loss": NaN}}'

    assert str(judged(tmp_path, answer, ("a",)).details) == "{'loss': nan}"


@cases("hostile")
def test_hostile_figures_of_evaluation_or_training_are_refused(data: bytes, tmp_path: Path) -> None:
    for read, file in ((read_quality, "quality.json"), (read_training, "training.json")):
        place = tmp_path / file
        place.write_bytes(data)
        content = FileRange(path=str(place), offset=0, length=len(data))

        with pytest.raises(StepFailed, match="cannot be read") as refused:
            read([ModelFile(path=file, role="other", content=content)])

        assert len(refused.value.message) < 500
