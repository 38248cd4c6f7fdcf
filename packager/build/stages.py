"""How far a build has come: values that the line hands on."""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.artifact import Artifacts
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.image import ImageSpec
from packager.core.plan import Plan
from packager.core.quality import QualityReport
from packager.core.recipe import Recipe, StepForecast
from packager.core.serving import ServingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The line up to the recipe: nothing has been run or written."""

    facts: Facts
    plan: Plan
    recipe: Recipe
    forecasts: tuple[StepForecast, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """The line up to the image: steps have run, no sink was touched."""

    planned: Planned
    artifacts: Artifacts
    serving: ServingConfig
    image: ImageSpec
    findings: tuple[Finding, ...] = ()  # what only the assembled image shows
    quality: QualityReport | None = None
