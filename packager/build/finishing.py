"""Finishing of a recipe's results before they become layers: one function per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from packager.build.quality import evaluated
from packager.build.services import BuildServices
from packager.build.stages import Finished, Planned
from packager.build.weights import with_draft_laid_out, with_split_weights
from packager.core.artifact import Artifacts
from packager.core.recipe import Finish
from packager.steps.services import RunStep

FINISHES: Mapping[Finish, Callable[[Finished, BuildServices, RunStep | None], Finished]] = {
    "evaluate": evaluated,
    "lay-out-draft": with_draft_laid_out,
    "split-weights": with_split_weights,
}


def finish_recipe(
    planned: Planned, artifacts: Artifacts, services: BuildServices, run_step: RunStep | None
) -> Finished:
    """Run the recipe's finishes in order. Without `run_step` nothing is measured."""
    finished = Finished(planned=planned, artifacts=artifacts)
    for name in planned.recipe.finishes:
        finished = FINISHES[name](finished, services, run_step)
    return finished
