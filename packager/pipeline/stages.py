"""States of a build between the stages of the line, and those stages as they are reported."""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.artifact import Artifacts
from packager.core.events import StagesEvent
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.image import ImageSpec
from packager.core.plan import Plan
from packager.core.quality import STEP as EVALUATION
from packager.core.quality import QualityReport
from packager.core.recipe import CacheStatus, Recipe, Step
from packager.core.references import ModelReference
from packager.core.serving import ServingConfig
from packager.pipeline.planning.services import PlannerServices

# Stages known before the plan; the plan adds the steps.
FIRST_STAGES = StagesEvent(stages=("model", "plan", "base", "layers", "publish"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The line up to the plan; only models were looked up over the network."""

    reference: ModelReference  # the model's, as the request has it
    facts: Facts  # without a base
    plan: Plan
    planning: PlannerServices
    chosen: tuple[Finding, ...]  # why it is the method that was taken
    is_peeked: bool  # the model is known by its headers: a build has to download it


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The line up to the recipe; no step has run."""

    reference: ModelReference  # the model's, as the request has it
    facts: Facts
    plan: Plan
    planning: PlannerServices
    recipe: Recipe
    forecasts: tuple[CacheStatus, ...] = ()
    layers: Step | None = None  # how layers that are quantized in the stream are looked up


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The line up to files that can become layers: steps have run, or none was to run."""

    planned: Planned
    artifacts: Artifacts
    quality: QualityReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """The line up to the image: steps have run, no sink was touched."""

    planned: Planned
    artifacts: Artifacts
    serving: ServingConfig
    image: ImageSpec
    findings: tuple[Finding, ...] = ()  # what only the assembled image shows
    quality: QualityReport | None = None


def stages_of(planned: Planned) -> StagesEvent:
    """Return the stages of a build whose steps are known."""
    recipe = planned.recipe
    steps = tuple(step.name for step in recipe.steps)
    if "evaluate" in recipe.finishes:
        steps += (EVALUATION,)
    return StagesEvent(stages=("model", "plan", "base", *steps, "layers", "publish"))
