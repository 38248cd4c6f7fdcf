"""Plans with predictions, for reports to show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.catalog.accelerators import accelerator_of
from packager.core.plan import Plan
from packager.core.quality import Comparison, Generations, QualityReport
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


def comparison(**changes: float | None) -> Comparison:
    """Give the figures of a quantized model of some size."""
    figures: dict[str, float | None] = {
        "texts": 64,
        "tokens": 24_000,
        "perplexity_base": 6.02,
        "perplexity_base_ci95": 0.4,
        "perplexity_candidate": 6.11,
        "perplexity_candidate_ci95": 0.41,
        "perplexity_increase": 0.015,
        "perplexity_increase_ci95": 0.003,
        "kld_mean": 0.018,
        "kld_mean_ci95": 0.001,
        "kld_median": 0.004,
        "kld_p99": 0.31,
        "kld_max": 2.4,
        "top1_agreement": 0.947,
        "top1_agreement_ci95": 0.004,
        "probability_delta_rms": 0.03,
        "answer_tokens": 854,
        "answer_flips": 0.021,
        "answer_tokens_lost": 12,
        "answer_tokens_won": 6,
    }
    return Comparison.model_validate({**figures, **changes})


def quality_report(**changes: float | None) -> QualityReport:
    """Give a whole report, with a little noise."""
    return QualityReport(
        quality=comparison(**changes),
        noise=comparison(kld_mean=2e-9, kld_mean_ci95=1e-10, top1_agreement=1.0),
        generation=Generations(
            prompts=8, identical=3, tokens_before_divergence=0.6, first_divergence_median=11
        ),
    )
