"""Plans with predictions and figures that were measured, for reports to show."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from packager.addons.bench.report import bench_report
from packager.catalog.accelerators import accelerator_of
from packager.core.bench import BenchReport
from packager.core.plan import Plan
from packager.core.quality import Comparison, Generations, QualityReport
from packager.core.reports.page import report_html
from packager.core.reports.report import Section
from packager.core.reports.text import report_lines, report_text, section_lines
from packager.core.speculation import Load, SpeculationReport
from packager.estimate.performance.choice import Objective
from packager.estimate.performance.predict import WORKLOADS
from packager.estimate.performance.presets import Candidate, Goal
from packager.estimate.performance.ranking import RankedInstance, Ranking, make_option
from packager.estimate.performance.report_outlook import Outlook, make_outlook
from packager.pipeline.rank import predict_plan
from packager.pipeline.report_page import plan_report, refused_report
from packager.pipeline.report_plan import PlanPage
from packager.pipeline.report_ranking import ranking_report
from tests.support.headers import LLAMA_3_8B, facts_of, model_of, plan_of
from tests.support.known import known
from tests.support.places import DATA

FIGURES = json.loads((DATA / "bench" / "quality.json").read_bytes())
LLAMA_8B = model_of(LLAMA_3_8B, name="meta-llama/Meta-Llama-3-8B-Instruct")


def plan_on(instance: str, **asked: Any) -> Plan:
    return plan_of(LLAMA_8B, instance, **asked)


def outlook_of(plan: Plan, *, discount: float = 0.0) -> Outlook:
    prediction = known(predict_plan(plan, accelerator_of(plan.instance), WORKLOADS["questions"]))
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
    return Comparison.model_validate({**FIGURES["comparison"], **changes})


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
    return Load(**(FIGURES["load"] | changes))


def speculation_report(**changes: Any) -> SpeculationReport:
    """What a draft gained: twice the speed, and one answer that differs."""
    given = FIGURES["speculation"]
    sides = ("speculative", "plain")
    speeds = [one | {side: load_figures(**one[side]) for side in sides} for one in given["speeds"]]
    return SpeculationReport.model_validate(given | {"speeds": speeds} | changes)


def page_text(page: PlanPage) -> str:
    """Write a plan as a terminal shows it."""
    return report_text(plan_report(page))


def plan_html(page: PlanPage, **how: Any) -> str:
    """Write the page of a plan."""
    return report_html(plan_report(page, **how))


def ranking_text(ranking: Ranking) -> str:
    """Write a ranking as a terminal shows it."""
    return report_text(ranking_report(ranking, "some model"))


def ranking_html(ranking: Ranking, model: str, **how: Any) -> str:
    """Write the page of a ranking."""
    return report_html(ranking_report(ranking, model, **how))


def refused_html(*told: Any) -> str:
    """Write the page of a refused request."""
    return report_html(refused_report(*told))


def lines_of(*sections: Section) -> list[str]:
    """Write sections as a terminal shows them."""
    return [line for section in sections for line in section_lines(section)]


def bench_html(report: BenchReport, **how: Any) -> str:
    """Write the page of a benchmark."""
    return report_html(bench_report(report, **how))


def bench_lines(report: BenchReport) -> list[str]:
    """Write a benchmark as a terminal shows it."""
    return report_lines(bench_report(report))
