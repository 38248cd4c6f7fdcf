"""Policy for results that are not in the cache."""

from __future__ import annotations

from dataclasses import replace

from packager.core.cached import difference_name
from packager.core.errors import NotCached
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.recipe import CacheStatus, Recipe
from packager.engines.neuron_targets import serves_only_exported
from packager.optimize.steps.services import OnMiss
from packager.pipeline.stages import Planned

_NAMED = 5  # differences of the nearest entry, in a message


def apply_miss_policy(planned: Planned, on_miss: OnMiss) -> Planned:
    """Apply the policy for cache misses: run, skip compile steps, or raise."""
    missing = [one for one in planned.forecasts if one.state != "hit"]
    if on_miss == "refuse" and missing:
        first = missing[0]
        raise NotCached(
            f"step {first.step!r} is not in the cache{_why_missing(first)}",
            hint="`packager cache explain` compares it with what is there; "
            "build without --require-cached where steps may run",
        )
    compiling = {step.name for step in planned.recipe.steps if step.gives == "compiled"}
    skipped = [one for one in missing if one.step in compiling]
    if on_miss != "skip-compile" or not skipped:
        return planned
    lacking = f"step {skipped[0].step!r} is not in the cache{_why_missing(skipped[0])}"
    if _only_quantizer(planned.recipe, planned.plan) in compiling:
        raise NotCached(
            f"{lacking}, and the model is quantized nowhere else",
            hint="build without --no-compile-on-miss, or without --compile",
        )
    elsewhere = "build without --no-compile-on-miss, here or where the cache is filled"
    variant = planned.plan.container.variant
    if serves_only_exported(planned.plan.container):
        raise NotCached(f"{lacking}, and {variant} serves nothing but its result", hint=elsewhere)
    message = f"nothing is compiled ahead of time: {lacking}"
    finding = Finding("warning", "compile-skipped", message, elsewhere)
    return replace(
        planned,
        plan=replace(planned.plan, compiler="", findings=(*planned.plan.findings, finding)),
        recipe=replace(
            planned.recipe,
            steps=tuple(one for one in planned.recipe.steps if one.name not in compiling),
        ),
        forecasts=tuple(one for one in planned.forecasts if one.step not in compiling),
    )


def _only_quantizer(recipe: Recipe, plan: Plan) -> str:
    """Return the step that quantizes while it compiles; "" where a separate step quantizes."""
    chosen = plan.quantization
    if chosen is None or chosen.existing or any(step.gives == "model" for step in recipe.steps):
        return ""
    return next((step.name for step in recipe.steps if step.holds_weights), "")


def _why_missing(forecast: CacheStatus) -> str:
    if forecast.differs:
        names = [difference_name(pointer) for pointer in forecast.differs]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"; the nearest entry differs in {', '.join(names[:_NAMED])}{more}"
    return f": {forecast.reason}" if forecast.reason else ""
