"""Conversion of a plan into ordered steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from artifact_cache.key import key_of
from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.ports import Compiler, ContainerFamily, Quantizer
from packager.core.recipe import Finish, Recipe, Step, StepInput
from packager.pipeline.planning.services import PlannerServices


def make_recipe(plan: Plan, facts: Facts, services: PlannerServices) -> Recipe:
    """Return the steps that the plan's techniques describe; none when a model is served as it is.

    A plan may hold techniques that no implementation here supports.  Building it would silently
    leave them out of the image, so it is refused.
    """
    steps = tuple(_steps(plan, facts, services))
    quantizer = quantizer_of(plan, facts, services)
    streams = quantizer is not None and quantizer.streams
    missing = () if streams else tuple(_missing_steps(plan, steps))
    if missing and facts.base is not None:
        raise PlanRejected((*plan.findings, *missing))
    finishes = tuple(_finishes(plan, facts))
    return Recipe(steps, ("quantize", *finishes) if streams else finishes)


def needed_tools(plan: Plan, facts: Facts, services: PlannerServices) -> tuple[str, ...]:
    """Return the tools of the techniques that have steps."""
    techniques = (
        quantizer_of(plan, facts, services),
        _sharder_of(plan, services),
        services.compilers.get(plan.compiler),
    )
    return tuple(one.tool for one in techniques if one is not None and one.tool)


def quantizer_of(plan: Plan, facts: Facts, services: PlannerServices) -> Quantizer | None:
    """Return who quantizes, in a step or in the stream; None for weights served as they are."""
    chosen, quantizer = plan.quantization, services.quantizer
    if quantizer is None or chosen is None or chosen.existing:
        return None
    return quantizer.for_plan(facts, plan)


def _sharder_of(plan: Plan, services: PlannerServices) -> Compiler | None:
    return services.find_sharder(plan.load_format) if plan.is_presharded else None


def _steps(plan: Plan, facts: Facts, services: PlannerServices) -> Iterator[Step]:
    """Yield the steps in order; of one that quantizes only if another uses its result."""
    earlier: list[Step] = []
    quantizer = quantizer_of(plan, facts, services)
    if quantizer is not None and not quantizer.streams:
        step = quantizer.step(facts, plan)
        labels = {"model": plan.served_name, **step.labels}
        earlier.append(replace(step, labels=labels, tensors=facts.model.tensors))
    if (sharder := _sharder_of(plan, services)) is not None:
        earlier.append(_working_in_image(plan, facts, sharder, services.family, earlier))
    if (compiler := services.compilers.get(plan.compiler)) is None:
        yield from earlier
        return
    compiling = _working_in_image(plan, facts, compiler, services.family, earlier)
    yield from (step for step in earlier if _is_used(step, compiling))
    yield compiling


def _working_in_image(
    plan: Plan,
    facts: Facts,
    compiler: Compiler,
    family: ContainerFamily,
    earlier: Sequence[Step],
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
    if plan.adapters is not None and plan.adapters.adapters:
        yield "add-adapters"
    if facts.evaluation is not None:
        yield "evaluate"
    if written and facts.draft is not None:
        yield "lay-out-draft"
    if written and not plan.is_presharded:  # the engine finds the ranks' files by their names
        yield "split-weights"


def _missing_steps(plan: Plan, steps: tuple[Step, ...]) -> Iterator[Finding]:
    if plan.quantization and not plan.quantization.existing and not steps:
        message = f"quantizing with {plan.quantization.method} can be planned, not done yet"
        hint = "quantize with another tool and package the result, or use `--quantize none`"
        yield Finding("error", "step-not-available", message, hint)
