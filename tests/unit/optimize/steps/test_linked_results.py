"""Builds of one key link the same files: a link changes when a file changed, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.core.files.opening import read_start
from packager.core.recipe import Step
from packager.models import local
from packager.models.walk import Found, walk
from packager.optimize.steps.failures import StepBroken
from packager.optimize.steps.results import read_result
from tests.support.doubles.models import write_model
from tests.support.places import files_below, sha256_in


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A result whose files get another link while it is read."""
    place: Path = write_model(tmp_path / "result", shards=1)

    def linked(root: Path, *roots: Any) -> Iterator[Found]:
        found = list(walk(root, *roots))
        for file in found:
            elsewhere = tmp_path / "elsewhere" / file.path
            elsewhere.parent.mkdir(parents=True, exist_ok=True)
            os.link(file.real, elsewhere)
        yield from found

    monkeypatch.setattr(local, "walk", linked)
    return place


@pytest.mark.parametrize("gives", ["model", "draft"])
def test_a_cached_result_may_get_another_link_while_it_is_read(place: Path, gives: str) -> None:
    step = Step(name="quantize", tool="t", gives=gives)  # type: ignore[arg-type]

    found = read_result(step, place, files_below(place, sha256_in), {})

    assert "config.json" in {file.path for file in found}


def test_a_result_of_nobody_else_may_not(place: Path) -> None:
    with pytest.raises(StepBroken, match="changed while it was read"):
        read_result(Step(name="quantize", tool="t", gives="model"), place, {}, {})


def test_figures_of_a_cached_evaluation_may_get_another_link(tmp_path: Path) -> None:
    place = tmp_path / "result"
    place.mkdir()
    (place / "quality.json").write_text("{}")
    read: list[bytes] = []

    def check(files: tuple[object, ...]) -> None:
        os.link(place / "quality.json", tmp_path / "other")
        read.extend(read_start(file.content, 10) for file in files)  # type: ignore[attr-defined]

    step = Step(name="evaluate", tool="t", gives="quality")
    read_result(step, place, files_below(place, sha256_in), {"quality": check})

    assert read == [b"{}"]
