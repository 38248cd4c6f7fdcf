"""One model on many instances: the line up to the plan for each, then predict and rank.

It is the very line of `packager plan`, with the model found once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from packager import pipeline
from packager.core.catalog import Accelerator
from packager.core.findings import errors_in
from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.errors import PlanRejected, UsageError
from packager.pipeline import Tools
from packager.planning.performance import (
    Prediction,
    Workload,
    concurrencies_of,
    predict,
    setup_of,
)
from packager.planning.presets import TPOT_LIMIT_S, Goal, candidates
from packager.planning.ranking import Option, Ranking, Skipped, make_option, rank

AcceleratorOf = Callable[[Instance], Accelerator]


def rank_instances(
    request: BuildRequest,
    tools: Tools,
    instances: Iterable[Instance],
    accelerator_of: AcceleratorOf,
    *,
    goal: Goal,
    workload: Workload,
    tpot_limit_s: float = TPOT_LIMIT_S,
    discount: float = 0.0,
) -> Ranking:
    """Plan the model on every instance and order what works by the goal.

    A model that cannot be found ends it; an instance that cannot serve the
    model is left out with its reason.
    """
    find_model: Callable[[str], ModelFiles] = cache(tools.find_model)
    once = replace(tools, find_model=find_model)
    quantized = bool(find_model(request.model).config.get("quantization_config"))
    options: list[Option] = []
    skipped: list[Skipped] = []
    for instance in instances:
        found: list[Option] = []
        reasons: list[str] = []
        for candidate in candidates(request, instance, goal, quantized=quantized):
            try:
                plan = pipeline.plan(candidate.request, once).plan
            except (PlanRejected, UsageError) as error:
                reasons.append(_reason(error))
                continue
            prediction = predict_plan(plan, accelerator_of(plan.instance), workload)
            if prediction is None:
                reasons.append(f"it fits, but nobody published figures of {instance.device_name}")
                continue
            found.append(
                make_option(
                    candidate,
                    plan,
                    prediction,
                    goal,
                    tpot_limit_s=tpot_limit_s,
                    discount=discount,
                )
            )
        options += found
        if not found:
            skipped.append(Skipped(instance.name, reasons[0] if reasons else "nothing to try"))
    return rank(options, skipped, goal, tpot_limit_s)


def predict_plan(plan: Plan, accelerator: Accelerator, workload: Workload) -> Prediction | None:
    """Predict a plan at every concurrency its shape holds; None without figures of the device."""
    return predict(setup_of(plan, accelerator), workload, concurrencies_of(plan))


def _reason(error: PlanRejected | UsageError) -> str:
    errors = errors_in(error.findings) if isinstance(error, PlanRejected) else ()
    return errors[0].message if errors else error.message
