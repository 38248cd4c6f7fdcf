"""What a quantizing step left is compared with what it was given: fresh or out of a cache."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.recipe import Step, StepOutcome, StepResult
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.optimize.steps.dry_run import DryRunExecutor
from packager.optimize.steps.failures import StepBroken
from tests.support.cache_opening import open_local
from tests.support.cases import cases
from tests.support.doubles.models import write_model, write_weights
from tests.support.headers import TINY, model_of
from tests.support.quantized import arriving, save
from tests.support.tool_steps import checkpoint_step, run_step
from tests.unit.optimize.steps.test_larger_artifacts import tool

Q = "model.layers.1.self_attn.q_proj.weight"
STATED = {"quantization_config": {"quant_method": "compressed-tensors"}}
Tensors = dict[str, tuple[str, tuple[int, ...]]]


class Quantizer(DryRunExecutor):
    """Leaves a checkpoint in 8 bits, after something was done to its tensors."""

    def __init__(self, change: Callable[[Tensors], None]) -> None:
        super().__init__(tool)
        self.change = change

    def run(self, step: Step, into: Path) -> StepResult:
        tensors: Tensors = {one.name: (one.dtype, one.shape) for one in step.tensors}
        for name, (_, shape) in list(tensors.items()):
            if name.endswith("_proj.weight"):
                tensors[name] = ("F8_E4M3", shape)
                tensors[f"{name}_scale"] = ("BF16", (shape[0], 1))
        self.change(tensors)
        write_model(into, config=STATED)
        for file in into.glob("model*"):
            file.unlink()
        write_weights(into, tensors, shards=1)
        return StepResult()


def nothing(tensors: Tensors) -> None:
    """Leave everything where it is."""


def lose(tensors: Tensors) -> None:
    del tensors[Q]


def rename(tensors: Tensors) -> None:
    tensors[Q.replace("q_proj", "w1")] = tensors.pop(Q)


def reshape(tensors: Tensors) -> None:
    tensors["model.norm.weight"] = ("BF16", (32,))


def unscale(tensors: Tensors) -> None:
    del tensors[f"{Q}_scale"]


@pytest.fixture
def step(tmp_path: Path) -> Step:
    given = LocalSource().facts(parse_model_reference(str(write_model(tmp_path / "model"))))
    return checkpoint_step(tensors=given.tensors, config=given.config)


def run(tmp_path: Path, step: Step, change: Callable[[Tensors], None]) -> StepOutcome:
    return run_step(Quantizer(change), open_local(tmp_path / "cache"), tmp_path, step)


def test_a_whole_result_is_published_and_taken_again(tmp_path: Path, step: Step) -> None:
    assert not run(tmp_path, step, nothing).reused
    assert run(tmp_path, step, lose).reused


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lose, f"1 of the source's 21 tensors are lost or changed: {Q} is missing"),
        (rename, f"1 of the source's 21 tensors are lost or changed: {Q} is missing"),
        (reshape, "model.norm.weight has shape [32], not [64]"),
        (unscale, f"{Q} is F8_E4M3, not BF16, and has no scale"),
    ],
)
def test_a_result_that_lost_a_tensor_ends_the_build_and_is_not_published(
    tmp_path: Path, step: Step, change: Callable[[Tensors], None], says: str
) -> None:
    with pytest.raises(StepBroken) as broken:
        run(tmp_path, step, change)

    assert says in broken.value.message
    assert broken.value.exit_code == 6
    assert not run(tmp_path, step, nothing).reused


class Packer(DryRunExecutor):
    """Leaves a checkpoint as the library writes it, with other bytes for some tensors."""

    def __init__(self, values: Mapping[str, bytes], **stated: Any) -> None:
        super().__init__(tool)
        self.values, self.stated = values, stated

    def run(self, step: Step, into: Path) -> StepResult:
        save(arriving("ct-fp8-dynamic", **self.stated), into, self.values)
        return StepResult()


@cases("a_result_that_would_be_refused_if_it_arrived_is_not_published")
def test_a_result_that_would_be_refused_if_it_arrived_is_not_published(
    tmp_path: Path, number: int, stated: dict[str, Any], says: str
) -> None:
    plain = model_of(TINY, dtype="BF16")
    step = checkpoint_step(tensors=plain.tensors, config=plain.config)
    scale = next(one for one in arriving("ct-fp8-dynamic").tensors if "scale" in one.name)
    values = {scale.name: number.to_bytes(2, "little") * (scale.size // 2)}

    with pytest.raises(StepBroken, match=re.escape(says)):
        run_step(Packer(values, **stated), open_local(tmp_path / "cache"), tmp_path, step)


def test_an_entry_that_lacks_tensors_is_not_used(tmp_path: Path, step: Step) -> None:
    """As an earlier version may have published it: the headers decide, not the key."""
    known = tuple(one for one in step.tensors if one.name != Q)
    run(tmp_path, replace(step, tensors=known), nothing)

    with pytest.raises(StepBroken, match="q_proj"):
        run(tmp_path, step, nothing)
