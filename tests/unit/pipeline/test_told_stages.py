"""The stages of a build, as they are announced before they begin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from packager.pipeline.stages import FIRST_STAGES, Planned, stages_of


def test_steps_stand_between_the_plan_and_the_layers() -> None:
    steps = (SimpleNamespace(name="quantize"), SimpleNamespace(name="compile"))
    recipe = SimpleNamespace(steps=steps, finishes=("evaluate", "split-weights"))

    known = stages_of(cast("Planned", SimpleNamespace(recipe=recipe)))

    assert FIRST_STAGES.stages == ("model", "plan", "base", "layers", "publish")
    assert known.stages == (
        *("model", "plan", "base"),
        *("quantize", "compile", "evaluate"),
        *("layers", "publish"),
    )
