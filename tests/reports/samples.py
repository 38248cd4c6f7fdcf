"""Plans with predictions, for reports to show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.catalog.accelerators import accelerator_of
from packager.core.plan import Plan
from packager.jobs.rank import predict_plan
from packager.planning.performance import WORKLOADS
from packager.planning.presets import Candidate, Goal
from packager.planning.ranking import Option, make_option
from packager.reports.outlook import Outlook, make_outlook
from tests.planning.headers import LLAMA_3_8B, facts_of, model_of, plan_of

LLAMA_8B = model_of(LLAMA_3_8B, name="meta-llama/Meta-Llama-3-8B-Instruct")


def plan_on(instance: str, **asked: Any) -> Plan:
    return plan_of(LLAMA_8B, instance, **asked)


def outlook_of(plan: Plan, *, discount: float = 0.0) -> Outlook:
    prediction = predict_plan(plan, accelerator_of(plan.instance), WORKLOADS["questions"])
    assert prediction is not None
    return make_outlook(plan, prediction, discount=discount)


def option_on(instance: str, goal: Goal, *, usd_hour: float | None = None, **asked: Any) -> Option:
    plan = plan_on(instance, **asked)
    if usd_hour is not None:
        plan = replace(plan, instance=replace(plan.instance, price_usd_hour=usd_hour or None))
    candidate = Candidate(request=facts_of(LLAMA_8B, instance).request, changes=asked)
    return make_option(candidate, plan, outlook_of(plan).prediction, goal)
