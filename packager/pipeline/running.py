"""Running the steps of a recipe: tools, GPUs and threads, and what results change in a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from packager.core.artifact import Artifacts
from packager.core.facts import Facts
from packager.core.plan import Plan
from packager.core.recipe import Recipe, Step, StepOutcome
from packager.models.checkpoints.ranks import with_ranks
from packager.optimize.steps.services import RunStep
from packager.pipeline.planning.recipe import make_recipe
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Planned


def with_tools_installed(planned: Planned, services: BuildServices) -> Planned:
    """Install the tools of the steps that will run.

    An environment may have other versions than its tool declares. Versions are in the keys, so the
    recipe is made again: else results get a wrong key.
    """
    missed = {one.step: one.tool for one in planned.forecasts if one.state != "hit"}
    for step in planned.recipe.steps:
        if step.name in missed:
            services.executor.admit(step)
    wanted = set(missed.values())
    known = planned.facts.tools
    for name in sorted(wanted):
        services.executor.prepare(name, known[name].build if name in known else "cpu")
    found = {name: services.executor.find_tool(name, known[name].build) for name in known}
    if all(
        replace(found[name], installed=True) == replace(known[name], installed=True)
        for name in wanted
    ):
        return planned
    facts = replace(planned.facts, tools=found)
    return replace(planned, facts=facts, recipe=make_recipe(planned.plan, facts, planned.planning))


def run_recipe(recipe: Recipe, facts: Facts, run_step: RunStep | None) -> Artifacts:
    """Run the steps in order; files that no step replaces are served unchanged."""
    outcomes: dict[str, StepOutcome] = {}
    files = {
        "model": facts.model.files,
        "draft": facts.draft.files if facts.draft else (),
        "compiled": (),
    }
    for step in recipe.steps if run_step else ():
        assert run_step is not None
        outcome = run_step(with_results(step, outcomes))
        outcomes[step.name], role = outcome, step.gives
        if step.gives == "ranks":  # in place of the weights that they were made of
            ranks = replace(outcome, files=with_ranks(files["model"], outcome.files))
            outcomes[step.name], role = ranks, "model"
        files[role] = outcomes[step.name].files
    if any(step.holds_weights for step in recipe.steps):
        files["model"] = tuple(file for file in files["model"] if file.role != "weights")
    return Artifacts(
        model=files["model"],
        draft=files["draft"],
        compiled=files["compiled"],
        ran=tuple(name for name, outcome in outcomes.items() if not outcome.reused),
        reused=tuple(name for name, outcome in outcomes.items() if outcome.reused),
        outcomes=outcomes,
    )


def with_results(step: Step, outcomes: Mapping[str, StepOutcome]) -> Step:
    """Add to a step the files of the earlier steps that it works on."""
    inputs = {
        role: replace(given, files=outcomes[given.result_of].files) if given.result_of else given
        for role, given in step.inputs.items()
    }
    return replace(step, inputs=inputs)


def with_effective_shape(plan: Plan, artifacts: Artifacts) -> Plan:
    """Return the plan with the shape of artifacts that are larger than requested.

    The compiled shape decides: with another one, the engine would compile again or refuse.
    """
    given = {
        pointer.removeprefix("/shape/"): value
        for outcome in artifacts.outcomes.values()
        for pointer, value in outcome.effective.items()
    }
    known = {name: given[name] for name in asdict(plan.shape) if name in given}
    return replace(plan, shape=replace(plan.shape, **known)) if known else plan
