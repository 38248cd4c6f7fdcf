"""Every report keeps what strangers wrote within its own lines, as it is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from artifact_cache.negative import Failure
from packager.addons.bench.draft_measure.report import draft_report
from packager.addons.fleet.report import outcome_report, plan_report, refusal_lines
from packager.cli.terminal import print_lines, print_text
from packager.core.cached import EntrySummary, Statistics
from packager.core.errors import PlanRejected
from packager.core.findings import Finding
from packager.core.recipe import CacheStatus
from packager.core.record import RecordedStep
from packager.core.reports.text import (
    finding_lines,
    report_lines,
    report_text,
    right_table_lines,
    table_lines,
)
from packager.core.techniques import Rejected
from packager.core.training import TrainingTexts
from packager.core.warmup import Outcome, WarmPlan
from packager.estimate.performance.ranking import SkippedInstance, rank
from packager.optimize.cache.report import (
    explanation_lines,
    failure_report,
    failures_report,
    list_report,
    statistics_report,
)
from packager.optimize.drafts.train.report import training_report
from packager.optimize.steps.report import forecast_sentences, ran_lines
from packager.pipeline.report_plan import PlanPage, rejection_lines
from tests.support.cases import read_tables
from tests.support.report_values import (
    option_on,
    page_text,
    plan_html,
    plan_on,
    ranking_text,
    speculation_report,
)
from tests.unit.cli.test_hostile_names import FORGED, HOSTILE, assert_harmless
from tests.unit.optimize.drafts.train.test_report import DONE, TEXTS

# Documents in which every text of a stranger is TEXT.
TABLES: dict[str, Any] = json.loads(
    json.dumps(read_tables(__file__)).replace('"TEXT"', json.dumps(HOSTILE))
)
FINDING = Finding("warning", f"code{HOSTILE}", HOSTILE, HOSTILE)
FAILURE = Failure(
    **TABLES["failure"], kind=f"kind{HOSTILE}", key="0" * 64, log=f"log\n{FORGED}\n{HOSTILE}"
)
WARM_PLAN = WarmPlan.model_validate(TABLES["warm_plan"])
(JOB,) = WARM_PLAN.jobs


def hostile_page() -> PlanPage:
    plan = plan_on("ml.g5.12xlarge")
    return PlanPage(
        plan=replace(
            plan,
            served_name=HOSTILE,
            model=replace(plan.model, name=HOSTILE, revision="0" * 40),
            profile=replace(plan.profile, architecture=HOSTILE),
            container=replace(plan.container, engine=HOSTILE, version=HOSTILE),
            findings=(FINDING,),
            rejected=(Rejected(what=HOSTILE, reason=HOSTILE, instead=HOSTILE, code="a"),),
        )
    )


def hostile_speculation() -> Any:
    report = speculation_report()
    assert report.sameness is not None
    different = report.sameness.differences[0].model_copy(
        update={"prompt": HOSTILE, "speculative": HOSTILE, "plain": HOSTILE}
    )
    same = report.sameness.model_copy(update={"differences": (different,)})
    changed = {"server": HOSTILE, "plain": HOSTILE, "data": HOSTILE, "failures": (HOSTILE,)}
    return report.model_copy(update={**changed, "sameness": same})


REPORTS: dict[str, Callable[[], Any]] = {
    "findings": lambda: finding_lines([FINDING]),
    "plan": lambda: page_text(hostile_page()),
    "plan as a page": lambda: plan_html(hostile_page()),
    "rejected plan": lambda: rejection_lines(PlanRejected((FINDING,), (HOSTILE,))),
    "ranking": lambda: ranking_text(
        rank(
            [option_on("ml.g5.12xlarge", "cost")],
            [SkippedInstance(instance=HOSTILE, reason=HOSTILE)],
            goal="cost",
            tpot_limit_s=0.1,
        )
    ),
    "warm plan": lambda: report_lines(plan_report(WARM_PLAN)),
    "refused requests": lambda: refusal_lines(WARM_PLAN),
    "ended jobs": lambda: report_lines(
        outcome_report([Outcome(job=JOB, state="failed", reason=HOSTILE)])
    ),
    "speculation": lambda: report_lines(draft_report(hostile_speculation())),
    "training": lambda: report_lines(
        training_report(
            DONE,
            TrainingTexts(train=replace(TEXTS, source=HOSTILE), held_out=TEXTS),
            HOSTILE,
            Path(HOSTILE),
        )
    ),
    "forecasts": lambda: forecast_sentences(
        [CacheStatus(step=HOSTILE, tool=HOSTILE, state="unknown", reason=HOSTILE)]
    ),
    "steps that ran": lambda: ran_lines([RecordedStep(name=HOSTILE, tool=HOSTILE)]),
    "entries": lambda: report_text(
        list_report([EntrySummary(**TABLES["entry"], key="0" * 64)], 9.0)
    ),
    "statistics": lambda: report_text(
        statistics_report(Statistics(**TABLES["statistics"], by_kind={HOSTILE: (1, 1)}, totals=()))
    ),
    "failures": lambda: report_text(failures_report([FAILURE], 1.0)),
    "log of a failure": lambda: report_text(failure_report(FAILURE, 1.0)),
    "explanation": lambda: explanation_lines(TABLES["explanation"], 9.0),
}


@pytest.mark.parametrize("name", REPORTS)
def test_hostile_texts_keep_their_lines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = REPORTS[name]()

    if isinstance(made, str):
        print_text(made)
    else:
        print_lines(made)

    assert_harmless(capsys.readouterr().out)


def test_a_cell_of_a_table_is_as_wide_as_it_is_printed() -> None:
    rows = [["a\nb", "c"], ["d", "\u202ee"]]

    assert table_lines(("name", "what"), rows) == ["name  what", "a\\nb  c", "d     \\u202ee"]
    assert right_table_lines(("n",), [["\n"]]) == ["   n", "  \\n"]
