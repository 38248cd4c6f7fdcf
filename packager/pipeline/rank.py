"""Prediction and ranking of one model on many instances.

Each instance is planned by the line of `packager plan`, with the model resolved once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from packager.core.catalog import Accelerator
from packager.core.errors import PlanRejected, UsageError
from packager.core.findings import NEEDED_BYTES, USABLE_BYTES, errors_in
from packager.core.instance import Instance
from packager.core.measurement import MeasuredRun
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.recipe import CacheStatus, Step
from packager.core.references import ModelReference
from packager.core.request import BuildRequest
from packager.core.units import gib
from packager.estimate.performance.calibration import predict_measured
from packager.estimate.performance.choice import Objective
from packager.estimate.performance.interpolated import predict_between
from packager.estimate.performance.measured import (
    NOT_CORRECTED,
    check_places,
    measured_acceptance,
    measured_points,
    telling,
)
from packager.estimate.performance.predict import Prediction, Workload, concurrencies_of, setup_of
from packager.estimate.performance.presets import (
    PRESETS,
    REQUESTS_PER_DAY,
    Candidate,
    Goal,
    candidates,
)
from packager.estimate.performance.ranking import (
    RankedInstance,
    Ranking,
    SkippedInstance,
    make_option,
    rank,
)
from packager.models.architectures.profile import read_head
from packager.pipeline import pipeline
from packager.pipeline.planning.requested import target_of
from packager.pipeline.resolve import find_workload
from packager.pipeline.services import BuildServices

FITS = "it fits"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Reason why a candidate cannot be used on an instance."""

    reason: str
    fits: bool = False  # and only figures of its devices are missing
    needed_bytes: float | None = None  # of a device; None where another thing than memory lacks


def rank_instances(
    request: BuildRequest,
    services: BuildServices,
    instances: Iterable[Instance],
    *,
    goal: Goal | None = None,
    discount: float = 0.0,
    requests_per_day: int = REQUESTS_PER_DAY,
    measured: Sequence[MeasuredRun] = (),
) -> Ranking:
    """Plan the model on every instance and order what works by the goal.

    The goal defaults to the request's, then to cost. Measurements in `measured` correct the plans
    that they apply to; the others say why they do not apply.

    A model that cannot be found ends it; an instance that cannot serve the
    model is left out with its reason.
    """
    parse: Callable[[str], ModelReference] = cache(
        services.parse_model_reference
    )  # for every candidate
    find_model: Callable[[ModelReference], ModelFiles] = cache(services.find_model)
    # A refused instance gets no suggestions: its row has only the reason.
    once = replace(
        services,
        parse_model_reference=parse,
        find_model=find_model,
        peek_model=lambda _: None,  # looked up once above: every plan uses the result
        find_draft=cache(services.find_draft),
        instances=None,
        check_cache=_unchecked,
        pin_files=_unpinned,
    )
    check_places(measured)
    model = find_model(parse(request.model))
    goal = goal or request.goal or "cost"
    workload = find_workload(request.workload, services.read_workload)
    target = replace(target_of(request, workload), goal=goal)
    once = replace(once, read_workload=lambda _: workload)
    quantized = bool(model.config.get("quantization_config"))
    brings_draft = read_head(model).layers > 0
    options: list[RankedInstance] = []
    skipped: list[SkippedInstance] = []
    for instance in instances:
        found: list[RankedInstance] = []
        refusals: list[_Refusal] = []
        for candidate in candidates(
            request, instance, goal, quantized=quantized, brings_draft=brings_draft
        ):
            try:
                option = _try(candidate, once, target, discount, requests_per_day, measured)
            except (PlanRejected, UsageError) as error:
                refusals.append(_refusal(error, candidate))
            else:
                if option:
                    found.append(option)
                else:
                    reason = f"{FITS}, but figures of its devices are not published"
                    refusals.append(_Refusal(reason, fits=True))
        options += found
        if not found:
            closest = _closest(refusals)
            skipped.append(
                SkippedInstance(instance.name, closest.reason, fits=closest.fits, machine=instance)
            )
    _check_used(measured, options)
    ranking = rank(options, skipped, goal, target.tpot_limit_s, target.ttft_limit_s)
    return replace(ranking, model=model)


def _check_used(measured: Sequence[MeasuredRun], options: Iterable[RankedInstance]) -> None:
    """Raise `UsageError` where no measurement applies to any of the plans."""
    plans = tuple(options)
    if measured and plans and not any(one.prediction.fit for one in plans):
        uncorrected = (line for line in plans[0].prediction.assumptions if NOT_CORRECTED in line)
        reason = next(uncorrected).removeprefix(NOT_CORRECTED)
        raise UsageError(
            f"--measured applies to none of the {len(plans)} plans: {reason}",
            hint="measure the model that is planned, or leave the option out",
        )


def menu(
    request: BuildRequest,
    services: BuildServices,
    instance: Instance,
    discount: float = 0.0,
    requests_per_day: int = REQUESTS_PER_DAY,
) -> tuple[tuple[Goal, RankedInstance], ...]:
    """Return the best configuration of one instance for every goal."""
    rankings = (
        rank_instances(
            request,
            services,
            (instance,),
            goal=goal,
            discount=discount,
            requests_per_day=requests_per_day,
        )
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
    """Predict a plan at every concurrency of its shape; None without figures of the device.

    The formula is fitted to what was `measured` of this plan, whose model may also be `known_as`
    other names; without figures, the result is the measurements alone.
    """
    setup = setup_of(plan, accelerator, acceptance_length=measured_acceptance(plan, measured))
    points = measured_points(plan, setup, workload, measured, known_as=known_as)
    concurrencies = concurrencies_of(plan)
    found = predict_measured(setup, workload, concurrencies, points)
    return found or predict_between(workload, concurrencies, points)


def _try(
    candidate: Candidate,
    services: BuildServices,
    target: Objective,
    discount: float,
    requests_per_day: int,
    measured: Sequence[MeasuredRun] = (),
) -> RankedInstance | None:
    asked = candidate.request  # several machines are compared only on request
    request = asked.model_copy(update={"nodes": asked.nodes or 1})
    plan = pipeline.plan(request, services).plan
    accelerator = services.accelerator_of(plan.instance)
    correction = telling(
        plan,
        setup_of(plan, accelerator),
        measured,
        known_as=(asked.model,),
        other_format="quantize" in candidate.changes,
    )
    prediction = predict_plan(
        plan, accelerator, plan.workload, correction.runs, known_as=(asked.model,)
    )
    if prediction is None:
        return None
    prediction = replace(prediction, assumptions=(*prediction.assumptions, *correction.others))
    return make_option(
        candidate,
        plan,
        prediction,
        target,
        discount=discount,
        requests_per_day=requests_per_day,
    )


def _unchecked(step: Step) -> CacheStatus:
    """Return an unknown status without a look-up in the cache, which a ranking does not need."""
    return CacheStatus(step=step.name, tool=step.tool, state="unknown")


def _unpinned(model: ModelFiles) -> ModelFiles:
    """Return files without digests: a ranking needs no keys."""
    return model


def _closest(refusals: list[_Refusal]) -> _Refusal:
    """Return the refusal of the candidate that came closest to fitting."""
    if fitting := [one for one in refusals if one.fits]:
        return fitting[0]
    lacking = [(one.needed_bytes, one) for one in refusals if one.needed_bytes is not None]
    if refusals[0].needed_bytes is None:
        return refusals[0]
    return min(lacking, key=lambda one: one[0])[1]


def _refusal(error: PlanRejected | UsageError, candidate: Candidate) -> _Refusal:
    """Return in one line why a candidate was refused, with numbers where it does not fit."""
    errors = errors_in(error.findings) if isinstance(error, PlanRejected) else ()
    if not errors:
        return _Refusal(error.message)
    needed, usable = (errors[0].data.get(name) for name in (NEEDED_BYTES, USABLE_BYTES))
    if not isinstance(needed, int | float) or not isinstance(usable, int | float):
        return _Refusal(errors[0].message)
    even = f"even with {candidate.options}, " if candidate.options else ""
    reason = f"{even}a device needs {gib(needed)} and has {gib(usable)} usable"
    return _Refusal(reason, needed_bytes=needed)
