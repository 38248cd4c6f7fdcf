"""Conversion of a plan into ordered steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from artifact_cache.key import key_of
from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.ports import Compiler, ContainerFamily, Quantizer, QuantizesInStream
from packager.core.recipe import Finish, Recipe, Step, StepInput


def make_recipe(
    plan: Plan,
    facts: Facts,
    quantizer: Quantizer | None = None,
    compiler: Compiler | None = None,
    family: ContainerFamily | None = None,
    sharder: Compiler | None = None,
) -> Recipe:
    """Return the steps that the plan's techniques describe; none when a model is served as it is.

    A plan may hold techniques that no implementation here supports.  Building it would silently
    leave them out of the image, so it is refused.
    """
    steps = tuple(_steps(plan, facts, quantizer))
    if sharder is not None and family is not None and plan.is_presharded:
        steps = (*steps, _working_in_image(plan, facts, sharder, family, steps))
    if compiler is not None and family is not None:
        compiling = _working_in_image(plan, facts, compiler, family, steps)
        steps = (*(step for step in steps if _is_used(step, compiling)), compiling)
    streams = isinstance(quantizer, QuantizesInStream) and _quantizes(plan)
    missing = () if streams else tuple(_missing_steps(plan, steps))
    if missing and facts.base is not None:
        raise PlanRejected((*plan.findings, *missing))
    finishes = tuple(_finishes(plan, facts))
    return Recipe(steps, ("quantize", *finishes) if streams else finishes)


def needed_tools(
    plan: Plan,
    quantizer: Quantizer | None,
    compiler: Compiler | None = None,
    sharder: Compiler | None = None,
) -> tuple[str, ...]:
    """Return the tools of the techniques that have steps."""
    quantizes = _quantizes(plan)
    return tuple(
        technique.tool
        for technique, works in (
            (quantizer, quantizes),
            (sharder, plan.is_presharded),
            (compiler, True),
        )
        if technique is not None and technique.tool and works
    )


def _steps(plan: Plan, facts: Facts, quantizer: Quantizer | None) -> Iterator[Step]:
    if quantizer and _quantizes(plan) and not isinstance(quantizer, QuantizesInStream):
        step = quantizer.step(facts, plan)
        labels = {"model": plan.served_name, **step.labels}
        yield replace(step, labels=labels, tensors=facts.model.tensors)


def _quantizes(plan: Plan) -> bool:
    return plan.quantization is not None and not plan.quantization.existing


def _working_in_image(
    plan: Plan,
    facts: Facts,
    compiler: Compiler,
    family: ContainerFamily,
    earlier: tuple[Step, ...],
) -> Step:
    """Describe a compiler's work on the exact configuration that the image will serve."""
    files = {"model": facts.model.files, "draft": facts.draft.files if facts.draft else ()}
    inputs = {role: StepInput(files=given) for role, given in files.items() if given}
    for step in earlier:
        role = "model" if step.gives == "ranks" else step.gives
        key = key_of(step.key) if step.key is not None else ""
        inputs[role] = StepInput(result_of=step.name, result_key=key)
    serving = family.render(plan, Artifacts(model=files["model"], draft=files["draft"]))
    step = compiler.step(facts, plan, serving, inputs)
    return replace(step, labels={"model": plan.served_name, **step.labels})


def _is_used(step: Step, last: Step) -> bool:
    """Return whether the result of `step` is used; a compiler that quantizes itself does not."""
    taken = any(given.result_of == step.name for given in last.inputs.values())
    return taken or step.gives != "model" or not last.holds_weights


def _finishes(plan: Plan, facts: Facts) -> Iterator[Finish]:
    """Yield the finishes after the steps; mounted weights need none."""
    written = plan.weights == "baked" or plan.one_mount
    if facts.evaluation is not None:
        yield "evaluate"
    if written and facts.draft is not None:
        yield "lay-out-draft"
    if written and not plan.is_presharded:  # the engine finds the ranks' files by their names
        yield "split-weights"


def _missing_steps(plan: Plan, steps: tuple[Step, ...]) -> Iterator[Finding]:
    if plan.quantization and _quantizes(plan) and not steps:
        message = f"quantizing with {plan.quantization.method} can be planned, not done yet"
        hint = "quantize with another tool and package the result, or use `--quantize none`"
        yield Finding("error", "step-not-available", message, hint)
