"""From a plan to ordered work."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.recipe import Recipe
from packager.errors import PlanRejected


def make_recipe(plan: Plan, facts: Facts) -> Recipe:
    """Give no steps: a model is served as it is.

    A plan may hold techniques that no step brings about yet.  Building it
    would leave them out of the image without a word, so that is refused.
    """
    missing = tuple(_missing_steps(plan))
    if missing and facts.base is not None:
        raise PlanRejected((*plan.findings, *missing))
    return Recipe()


def _missing_steps(plan: Plan) -> Iterator[Finding]:
    if plan.quantization and not plan.quantization.existing:
        message = f"quantizing with {plan.quantization.method} can be planned, not done yet"
        hint = "quantize with another tool and package the result, or use `--quantize none`"
        yield Finding("error", "step-not-available", message, hint)
