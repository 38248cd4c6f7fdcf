"""Pages that are kept, mailed and printed: whole, quiet and safe."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from packager.core.errors import PlanRejected
from packager.core.findings import Finding
from packager.core.request import BuildRequest
from packager.core.techniques import Rejected
from packager.estimate.performance.ranking import SkippedInstance, rank
from packager.pipeline.choices import plan_choices, ranking_choices
from packager.pipeline.report_plan import PlanPage
from packager.pipeline.trace import Trace, make_trace
from tests.support.html_pages import Outline, check_page
from tests.support.report_values import (
    LLAMA_8B,
    option_on,
    outlook_of,
    plan_html,
    plan_on,
    ranking_html,
    refused_html,
)

PLAN = plan_on("ml.g5.12xlarge", family="lmi")
ASKED = BuildRequest(model="meta-llama/Meta-Llama-3-8B-Instruct", instance="ml.g5.12xlarge")
MADE = datetime(2026, 9, 1, 12, 30, tzinfo=UTC)
HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def trace_of(request: BuildRequest = ASKED) -> Trace:
    return make_trace(request, LLAMA_8B, made=MADE, packager="1.2.3")


def pages() -> dict[str, str]:
    options = [option_on(name, "cost") for name in ("ml.g5.12xlarge", "ml.p5.48xlarge")]
    ranking = rank(options, [SkippedInstance("ml.g4dn.xlarge", "too small")], "cost")
    page = PlanPage(plan=PLAN, outlook=outlook_of(PLAN), menu=(("cost", options[1]),))
    error = PlanRejected(
        (Finding("error", "too-large", "it is too large", data={"needed_bytes": 1}),),
        ("--quantize awq", "--instance ml.p5.48xlarge  # $63.30 an hour"),
    )
    return {
        "plan": plan_html(page, trace=trace_of(), choices=plan_choices(page, ASKED)),
        "plan without a trace": plan_html(page),
        "plan without figures": plan_html(PlanPage(plan=PLAN)),
        "refused": refused_html(ASKED, "some model", error, trace_of()),
        "ranking": ranking_html(
            ranking, "some model", trace=trace_of(), choices=ranking_choices(ranking, ASKED)
        ),
        "empty ranking": ranking_html(
            rank([], [SkippedInstance("a", "b")], "latency"), "some model"
        ),
    }


@pytest.mark.parametrize("name", pages())
def test_a_page_is_whole_fetches_nothing_and_runs_its_own_script_alone(name: str) -> None:
    page = pages()[name]

    check_page(page)
    assert not re.search(r"https?://", page)


def test_names_and_messages_of_strangers_are_escaped() -> None:
    plan = replace(
        PLAN,
        served_name=HOSTILE,
        model=replace(PLAN.model, name=HOSTILE, revision=HOSTILE),
        profile=replace(PLAN.profile, architecture=HOSTILE),
        findings=(Finding("note", HOSTILE, HOSTILE, HOSTILE),),
        rejected=(Rejected(what=HOSTILE, code=HOSTILE, reason=HOSTILE, instead=HOSTILE),),
    )
    asked = BuildRequest(model=HOSTILE, instance=HOSTILE)
    error = PlanRejected((Finding("error", HOSTILE, HOSTILE, HOSTILE),), ("--quantize awq",))
    shown = PlanPage(plan=plan)
    for page in (
        plan_html(shown, trace=trace_of(asked), choices=plan_choices(shown, asked)),
        refused_html(asked, HOSTILE, error, trace_of(asked)),
        ranking_html(rank([], [SkippedInstance(HOSTILE, HOSTILE)], "cost"), HOSTILE),
    ):
        outline = Outline(page)

        assert page.count("<script") == 1  # ours
        assert "<img" not in page
        assert not {key for key, _ in outline.attributes if key.startswith("on")}
        assert "&lt;script&gt;" in page


def test_bars_fill_the_device_and_no_more() -> None:
    page = plan_html(PlanPage(plan=PLAN))
    rectangles = re.findall(r'<rect x="([\d.]+)" y="0" width="([\d.]+)"', page)

    assert len(rectangles) >= 4
    assert all(float(x) + float(width) <= 1001 for x, width in rectangles)


def test_the_chart_marks_the_chosen_point() -> None:
    page = plan_html(PlanPage(plan=PLAN, outlook=outlook_of(PLAN)))

    assert page.count('class="halo"') == 1
    assert "tokens per second for one reader" in page


def test_the_reason_of_an_instance_spans_the_figures_that_it_has_not() -> None:
    options = [option_on("ml.g5.12xlarge", "cost")]
    page = ranking_html(
        rank(options, [SkippedInstance("ml.g4dn.xlarge", "too small")], "cost"), "m"
    )

    assert re.search(r'<tr class="none no">.*<td colspan="10">too small</td></tr>', page)
