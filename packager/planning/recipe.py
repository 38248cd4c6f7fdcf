"""From a plan to ordered work."""

from __future__ import annotations

from packager.core.facts import Facts
from packager.core.plan import Plan
from packager.core.recipe import Recipe


def make_recipe(plan: Plan, facts: Facts) -> Recipe:  # noqa: ARG001
    """Give no steps: without techniques the model is served as it is."""
    return Recipe()
