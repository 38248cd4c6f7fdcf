"""Plans with predictions and figures that were measured, for reports to show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.build.rank import predict_plan
from packager.catalog.accelerators import accelerator_of
from packager.core.plan import Plan
from packager.core.quality import Comparison, Generations, QualityReport
from packager.core.speculation import (
    Acceptance,
    Difference,
    Load,
    Sameness,
    SpeculationReport,
    Speed,
)
from packager.performance.choice import Objective
from packager.performance.predict import WORKLOADS
from packager.performance.presets import Candidate, Goal
from packager.performance.ranking import RankedInstance, make_option
from packager.performance.report_outlook import Outlook, make_outlook
from tests.support.headers import LLAMA_3_8B, facts_of, model_of, plan_of

LLAMA_8B = model_of(LLAMA_3_8B, name="meta-llama/Meta-Llama-3-8B-Instruct")


def plan_on(instance: str, **asked: Any) -> Plan:
    return plan_of(LLAMA_8B, instance, **asked)


def outlook_of(plan: Plan, *, discount: float = 0.0) -> Outlook:
    prediction = predict_plan(plan, accelerator_of(plan.instance), WORKLOADS["questions"])
    assert prediction is not None
    return make_outlook(plan, prediction, discount=discount)


def option_on(
    instance: str, goal: Goal, *, usd_hour: float | None = None, **asked: Any
) -> RankedInstance:
    plan = plan_on(instance, **asked)
    if usd_hour is not None:
        plan = replace(plan, instance=replace(plan.instance, price_usd_hour=usd_hour or None))
    candidate = Candidate(request=facts_of(LLAMA_8B, instance).request, changes=asked)
    return make_option(candidate, plan, outlook_of(plan).prediction, Objective(goal=goal))


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


def load_figures(**changes: Any) -> Load:
    """What a server did under a load."""
    given: dict[str, Any] = {
        "requests": 8,
        "failed": 0,
        "output_tokens": 400,
        "seconds": 4.0,
        "tokens_per_second": 100.0,
        "ttft_p50_s": 0.05,
        "tpot_p50_s": 0.01,
        "tpot_p95_s": 0.0204,
    }
    return Load(**(given | changes))


def speculation_report(**changes: Any) -> SpeculationReport:
    """What a draft gained: twice the speed, and one answer that differs."""
    given: dict[str, Any] = {
        "server": "shop:eagle",
        "plain": "shop:eagle without its draft",
        "measured": "2026-01-02T03:04:05Z",
        "data": "prompts.jsonl",
        "data_digest": "sha256:" + 64 * "d",
        "samples": 8,
        "seed": 0,
        "max_tokens": 64,
        "acceptance": Acceptance(
            source="vllm",
            length=2.345,
            rate=0.448,
            drafts=100,
            draft_tokens=300,
            accepted_tokens=134,
            by_position=(0.7, 0.4, 0.245),
        ),
        "speeds": (
            Speed(
                concurrency=1,
                speculative=load_figures(tokens_per_second=200.0, tpot_p50_s=0.005),
                plain=load_figures(),
                speedup=2.0,
            ),
            Speed(
                concurrency=4,
                speculative=load_figures(tokens_per_second=330.0, failed=1),
                plain=load_figures(tokens_per_second=300.0),
                speedup=1.1,
            ),
        ),
        "sameness": Sameness(
            compared=8,
            identical=7,
            differences=(
                Difference(
                    sample=3,
                    prompt="What is it?",
                    character=12,
                    token=4,
                    speculative="a dog",
                    plain="a cat",
                    verdict="difference",
                    gap=1.25,
                ),
            ),
        ),
        "failures": (),
    }
    return SpeculationReport(**(given | changes))
