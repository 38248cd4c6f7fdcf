"""From a plan to ordered work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.recipe import Recipe, Step
from packager.errors import PlanRejected
from packager.ports import Quantizer


def make_recipe(plan: Plan, facts: Facts, quantizer: Quantizer | None = None) -> Recipe:
    """Give the steps that the plan's techniques describe; none when a model is served as it is.

    A plan may hold techniques that nobody here brings about.  Building it
    would leave them out of the image without a word, so that is refused.
    """
    steps = tuple(_steps(plan, facts, quantizer))
    missing = tuple(_missing_steps(plan, steps))
    if missing and facts.base is not None:
        raise PlanRejected((*plan.findings, *missing))
    return Recipe(steps)


def needed_tools(plan: Plan, quantizer: Quantizer | None) -> tuple[str, ...]:
    """Name the tools of the techniques that have work to do."""
    if quantizer and quantizer.tool and plan.quantization and not plan.quantization.existing:
        return (quantizer.tool,)
    return ()


def _steps(plan: Plan, facts: Facts, quantizer: Quantizer | None) -> Iterator[Step]:
    if quantizer and plan.quantization and not plan.quantization.existing:
        step = quantizer.step(facts, plan)
        yield replace(step, labels={"model": plan.served_name, **step.labels})


def _missing_steps(plan: Plan, steps: tuple[Step, ...]) -> Iterator[Finding]:
    if plan.quantization and not plan.quantization.existing and not steps:
        message = f"quantizing with {plan.quantization.method} can be planned, not done yet"
        hint = "quantize with another tool and package the result, or use `--quantize none`"
        yield Finding("error", "step-not-available", message, hint)
