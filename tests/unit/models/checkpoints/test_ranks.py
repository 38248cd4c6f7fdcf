"""Files of ranks: which of them serve, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.image import Inline
from packager.core.model import ModelFile
from packager.core.recipe import Step
from packager.models.checkpoints.ranks import rank_faults, with_ranks
from packager.optimize.steps.failures import StepBroken
from packager.optimize.steps.results import read_result
from tests.support.cases import cases

WHOLE = [f"model-rank-{rank}-part-{part}.safetensors" for rank in (0, 1) for part in (0, 1)]


def files(names: list[str], size: int = 100) -> list[ModelFile]:
    content = Inline(b"x" * size)
    return [ModelFile(path=name, role="other", content=content) for name in names]


def test_every_part_of_every_rank_has_no_fault() -> None:
    assert rank_faults(files(WHOLE), 2) == []


@cases("what_no_engine_could_load_is_named", whole=4, more=[])
def test_what_no_engine_could_load_is_named(
    whole: int, more: list[str], ranks: int, said: str
) -> None:
    assert any(said in fault for fault in rank_faults(files([*WHOLE[:whole], *more]), ranks))


def test_a_file_without_a_header_is_named() -> None:
    assert "is empty" in rank_faults(files(WHOLE, size=8), 2)[0]


def test_a_step_s_result_for_other_ranks_is_not_used(tmp_path: Path) -> None:
    for name in WHOLE:
        (tmp_path / name).write_bytes(b"x" * 100)

    def step(ranks: int) -> Step:
        return Step(name="shard", tool="vllm-shards", gives="ranks", parameters={"ranks": ranks})

    found = read_result(step(2), tmp_path, {}, {})
    assert [file.path for file in found] == WHOLE
    with pytest.raises(StepBroken, match="rank 2 of 3 lacks part 0"):
        read_result(step(3), tmp_path, {}, {})


def test_ranks_take_the_place_of_weights_and_their_index() -> None:
    index = ModelFile(path="model.safetensors.index.json", role="config", content=Inline(b"{}"))
    weights = ModelFile(path="model.safetensors", role="weights", content=Inline(b"w"))
    config = ModelFile(path="config.json", role="config", content=Inline(b"{}"))

    found = with_ranks((weights, index, config), files(WHOLE[:1]))

    assert [(file.path, file.role) for file in found] == [
        ("config.json", "config"),
        (WHOLE[0], "weights"),
    ]
