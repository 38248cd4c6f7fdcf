"""A worker's result names exactly the files that it left: nothing else is published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packager.adapters.executors.failures import StepBroken
from packager.adapters.executors.protocol import Listener, judge
from packager.core.events import ignore
from packager.core.recipe import StepResult
from tests.tools.steps import step


def judged(root: Path, left: tuple[str, ...], named: tuple[str, ...]) -> StepResult:
    """Judge a run that ended well."""
    into, answer, log = root / "output", root / "result.json", root / "log"
    into.mkdir()
    for name in left:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_text("content")
    answer.write_text(json.dumps({"protocol": 1, "files": named}))
    log.touch()
    run = step("copy")
    with log.open("ab") as sink:
        return judge(run, 0, answer, into, Listener(run, sink, ignore), log, oom=False)


def test_what_is_left_and_named_is_the_result(tmp_path: Path) -> None:
    files = ("config.json", "sub/model.safetensors")

    assert judged(tmp_path, files, files) == StepResult()


@pytest.mark.parametrize(
    ("left", "named", "odd"),
    [
        (("a", "b"), ("a",), "b"),  # a file that nobody answers for would be in the image
        (("a",), ("a", "b"), "b"),
        (("a",), ("b",), "a, b"),
        (("a", "sub/b"), ("a",), "sub/b"),
        ((), (), "none at all"),
    ],
    ids=["more left than named", "more named than left", "others", "below", "nothing"],
)
def test_other_files_than_the_result_names_are_no_result(
    tmp_path: Path, left: tuple[str, ...], named: tuple[str, ...], odd: str
) -> None:
    with pytest.raises(StepBroken, match=f"left other files than its result names: {odd}"):
        judged(tmp_path, left, named)
