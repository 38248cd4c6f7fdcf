"""Finishing of a recipe's results before they become layers: one function per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from packager.core.artifact import Artifacts
from packager.core.recipe import Finish
from packager.optimize.steps.services import RunStep
from packager.pipeline.adapters import with_adapters
from packager.pipeline.quality import evaluated
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Finished, Planned
from packager.pipeline.streaming import quantized_in_stream
from packager.pipeline.weights import with_draft_laid_out, with_split_weights

FINISHES: Mapping[Finish, Callable[[Finished, BuildServices, RunStep | None], Finished]] = {
    "add-adapters": with_adapters,
    "quantize": quantized_in_stream,
    "evaluate": evaluated,
    "lay-out-draft": with_draft_laid_out,
    "split-weights": with_split_weights,
}


def finish_recipe(
    planned: Planned, artifacts: Artifacts, services: BuildServices, run_step: RunStep | None
) -> Finished:
    """Run the recipe's finishes in order. Without `run_step` the evaluation is skipped."""
    finished = Finished(planned=planned, artifacts=artifacts)
    for name in planned.recipe.finishes:
        finished = FINISHES[name](finished, services, run_step)
    return finished
