"""What a plan's page says before its reasons: other machines, other weights, what is paid once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.core.recipe import CacheStatus
from packager.core.reports.text import report_text
from packager.estimate.performance.report_outlook import make_outlook
from packager.pipeline import pipeline
from packager.pipeline.choices import plan_choices
from packager.pipeline.elsewhere import look_elsewhere, month_words, once_words
from packager.pipeline.rank import predict_plan
from packager.pipeline.report_page import plan_report
from packager.pipeline.report_plan import PlanPage, page_document
from tests.support.known import known
from tests.support.pages import model_like, request_of, services_with

MACHINES = ("ml.g5.12xlarge", "ml.g6e.xlarge", "ml.p5.48xlarge")


@pytest.fixture(scope="module")
def page() -> PlanPage:
    """A plan of 8 billion parameters on a machine that others beat."""
    model = model_like("dense")
    found = services_with(model)
    machines = tuple(one for one in found.instances or () if one.name in MACHINES)
    services = replace(found, instances=machines)
    request = request_of(model, "ml.g5.12xlarge")
    planned = pipeline.plan(request, services)
    plan = planned.plan
    prediction = known(predict_plan(plan, services.accelerator_of(plan.instance), plan.workload))
    return PlanPage(
        plan=plan,
        outlook=make_outlook(plan, prediction),
        elsewhere=look_elsewhere(request, services, plan.instance),
        menu=(),
    )


def test_the_cheapest_and_the_fastest_of_the_catalog_stand_beside_what_was_asked(
    page: PlanPage,
) -> None:
    choices = plan_choices(page, request_of(model_like("dense"), "ml.g5.12xlarge"))

    titles = {choice.plan.instance.name: choice.title for choice in choices}
    assert titles["ml.g5.12xlarge"] == "As asked"
    assert titles["ml.g6e.xlarge"] == "Lowest bill anywhere"
    assert titles["ml.p5.48xlarge"] == "Fastest anywhere"


def test_the_verdict_names_the_machine_that_takes_the_load_for_less(page: PlanPage) -> None:
    report = plan_report(page)
    assert page.outlook and page.outlook.monthly and page.elsewhere
    own = month_words(page.outlook.monthly)

    cheapest = known(page.elsewhere.cheapest)
    changed = f" with `{cheapest.candidate.options}`" if cheapest.candidate.options else ""
    said = f" 100,000 requests a day cost {own} a month; ml.g6e.xlarge{changed} does it for $"
    assert said in report.verdict
    assert report.tiles[0].text == own
    alone = plan_report(replace(page, elsewhere=replace(page.elsewhere, cheapest=None)))
    assert alone.verdict.endswith(f"cost {own} a month.")


def test_a_bill_shows_the_dearer_end_of_its_band(page: PlanPage) -> None:
    assert page.outlook and page.outlook.monthly
    month = replace(page.outlook.monthly, usd=9316.4, most_usd=15527.0)

    assert month_words(month) == "$9,316 to $15,527"
    assert month_words(replace(month, most_usd=month.usd)) == "$9,316"


def test_what_quantizing_changes_and_costs_once_is_a_table(page: PlanPage) -> None:
    text = report_text(plan_report(page))

    _, _, told = text.partition("\nquantized\n")
    rows = told.splitlines()[1:4]
    assert [row.split()[0] for row in rows] == ["bf16", "fp8", "w4a16"]
    assert "(--quantize fp8)" not in told.splitlines()[1]
    assert any("(--quantize awq)" in row and "quantize" in row for row in rows)
    assert "nothing" in rows[0]
    document = page_document(page)["anywhere"]
    assert document["cheapest"]["instance"] == "ml.g6e.xlarge"
    assert [one["method"] for one in document["quantized"]] == ["none", "fp8", "awq"]


def test_what_is_paid_once_says_how_long_where_and_for_how_much() -> None:
    known = CacheStatus(
        step="quantize",
        tool="llmcompressor",
        state="miss",
        where="ml.g6e.xlarge ($1.9 an hour): the cheapest",
        where_seconds=7200.0,
        where_usd=3.8,
    )

    assert once_words((known,)) == "quantize 2.0 h on ml.g6e.xlarge, $3.80"
    assert once_words((replace(known, state="hit"),)) == ""
    here = replace(known, where="", where_seconds=0.0, where_usd=None)
    assert once_words((here,)) == "quantize for an unknown time here"
