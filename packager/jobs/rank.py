"""One model on many instances: the line up to the plan for each, then predict and rank.

It is the very line of `packager plan`, with the model found once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

from packager.build import pipeline
from packager.build.resolve import find_workload
from packager.build.services import BuildServices
from packager.core.catalog import Accelerator
from packager.core.findings import errors_in
from packager.core.instance import Instance
from packager.core.measurement import MeasuredRun
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.recipe import Step, StepForecast
from packager.core.request import BuildRequest
from packager.errors import PlanRejected, UsageError
from packager.planning.calibration import predict_measured
from packager.planning.choice import Target, target_of
from packager.planning.measured import measured_acceptance, measured_points
from packager.planning.performance import Prediction, Workload, concurrencies_of, setup_of
from packager.planning.presets import PRESETS, Candidate, Goal, candidates
from packager.planning.profile import read_head
from packager.planning.ranking import Option, Ranking, Skipped, make_option, rank

FITS = "it fits"

# The planner's message, whose arithmetic is too long for a list.
DOES_NOT_FIT = re.compile(
    r"a device needs (?P<needed>[\d.]+ [GM]iB).* has (?P<usable>[\d.]+ [GM]iB) usable"
)


def rank_instances(
    request: BuildRequest,
    services: BuildServices,
    instances: Iterable[Instance],
    *,
    goal: Goal | None = None,
    discount: float = 0.0,
) -> Ranking:
    """Plan the model on every instance and order what works by the goal.

    The goal is the request's where none is given, and cost where it has none.

    A model that cannot be found ends it; an instance that cannot serve the
    model is left out with its reason.
    """
    find_model: Callable[[str], ModelFiles] = cache(services.find_model)
    # Nothing is suggested for an instance that is refused: its row has the reason only.
    once = replace(
        services,
        find_model=find_model,
        peek_model=lambda _: None,  # it is found above: every plan takes what was found
        find_draft=cache(services.find_draft) if services.find_draft else None,
        instances=None,
        foresee=_unasked,
        pin_files=_unpinned,
    )
    model = find_model(request.model)
    goal = goal or request.goal or "cost"
    workload = find_workload(request.workload, services.read_workload)
    target = replace(target_of(request, workload), goal=goal)
    once = replace(once, read_workload=lambda _: workload)
    quantized = bool(model.config.get("quantization_config"))
    brings_draft = read_head(model).layers > 0
    options: list[Option] = []
    skipped: list[Skipped] = []
    for instance in instances:
        found: list[Option] = []
        reasons: list[str] = []
        for candidate in candidates(
            request, instance, goal, quantized=quantized, brings_draft=brings_draft
        ):
            try:
                option = _try(candidate, once, target, discount)
            except (PlanRejected, UsageError) as error:
                reasons.append(_reason(error, candidate))
            else:
                if option:
                    found.append(option)
                else:
                    reasons.append(f"{FITS}, but nobody published figures of its devices")
        options += found
        if not found:
            skipped.append(Skipped(instance.name, _closest(reasons)))
    return rank(options, skipped, goal, target.tpot_limit_s, target.ttft_limit_s)


def menu(
    request: BuildRequest, services: BuildServices, instance: Instance, discount: float = 0.0
) -> tuple[tuple[Goal, Option], ...]:
    """Give the best configuration of one instance for every goal: what to try instead."""
    rankings = (
        rank_instances(request, services, (instance,), goal=goal, discount=discount)
        for goal in PRESETS
    )
    return tuple((ranking.goal, ranking.options[0]) for ranking in rankings if ranking.options)


def predict_plan(
    plan: Plan,
    accelerator: Accelerator,
    workload: Workload,
    measured: Sequence[MeasuredRun] = (),
    known_as: Iterable[str] = (),
) -> Prediction | None:
    """Predict a plan at every concurrency its shape holds; None without figures of the device.

    The formula is fitted to what was `measured` of this plan, whose model may also be
    `known_as` other names.
    """
    setup = setup_of(plan, accelerator, acceptance_length=measured_acceptance(plan, measured))
    points = measured_points(plan, setup, workload, measured, known_as=known_as)
    return predict_measured(setup, workload, concurrencies_of(plan), points)


def _try(
    candidate: Candidate, services: BuildServices, target: Target, discount: float
) -> Option | None:
    asked = candidate.request  # several machines are compared only where they are asked for
    request = asked.model_copy(update={"nodes": asked.nodes or 1})
    planned = pipeline.plan(request, services)
    plan = planned.plan
    prediction = predict_plan(plan, services.accelerator_of(plan.instance), plan.workload)
    if prediction is None:
        return None
    changes_weights = plan.quantization is not None and not plan.quantization.existing
    return make_option(
        candidate,
        plan,
        prediction,
        target,
        discount=discount,
        buildable=bool(planned.recipe.steps) or not changes_weights,
    )


def _unasked(step: Step) -> StepForecast:
    """Leave the cache alone: a ranking says nothing of it, and a shared one takes long to ask."""
    return StepForecast(step=step.name, tool=step.tool, state="unknown")


def _unpinned(model: ModelFiles) -> ModelFiles:
    """Leave files without digests: they are for keys, and nothing is looked up by one here."""
    return model


def _closest(reasons: list[str]) -> str:
    """Take the reason of the candidate that came closest to an option."""
    lacking = [reason for reason in reasons if "a device needs" in reason]
    fitting = [reason for reason in reasons if reason.startswith(FITS)]
    if fitting:
        return fitting[0]
    return min(lacking, key=_needed_gib) if reasons[0] in lacking else reasons[0]


def _needed_gib(reason: str) -> float:
    match = DOES_NOT_FIT.search(reason)
    return float(match["needed"].partition(" ")[0]) if match else 0.0


def _reason(error: PlanRejected | UsageError, candidate: Candidate) -> str:
    """Say in one line why a candidate was refused; where it does not fit, in numbers."""
    errors = errors_in(error.findings) if isinstance(error, PlanRejected) else ()
    message = errors[0].message if errors else error.message
    numbers = DOES_NOT_FIT.search(message)
    if numbers is None:
        return message
    even = f"even with {candidate.options}, " if candidate.options else ""
    return f"{even}a device needs {numbers['needed']} and has {numbers['usable']} usable"
