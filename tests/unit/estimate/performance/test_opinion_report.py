"""A second opinion beside our own figures: text, JSON and HTML."""

from __future__ import annotations

from dataclasses import replace

from packager.estimate.performance.opinion import Opinion
from packager.estimate.performance.predict import Band, Bands
from packager.estimate.performance.report_opinion import opinion_document, opinion_section
from packager.pipeline.report_plan import PlanPage, page_document
from tests.support.cases import as_type, read_tables
from tests.support.report_values import lines_of, outlook_of, page_text, plan_html, plan_on

PLAN = plan_on("ml.p5.4xlarge", family="vllm")
OUTLOOK = outlook_of(PLAN)
OURS = replace(OUTLOOK.prediction.points[0], tpot_s=0.008, ttft_s=0.05, output_tokens_s=100.0)
BAND = Band(share=0.3, source="a test")
PREDICTION = replace(
    OUTLOOK.prediction, points=(OURS,), bands=Bands(tpot=BAND, throughput=BAND, ttft=BAND)
)
ANSWER = as_type(read_tables(__file__)["answer"], Opinion)
UNKNOWN = Opinion(source="aiconfigurator", reason="it does not support A10G")


def test_each_figure_stands_beside_ours_with_its_ratio() -> None:
    lines = lines_of(opinion_section(ANSWER, PREDICTION))

    assert lines[0] == (
        "opinion    aiconfigurator 0.12.0, from its tables of vllm 0.24.0; gemm bfloat16"
    )
    assert lines[2].split() == [
        *("1", "6.0", "ms", "8.0", "ms", "0.75x"),
        *("40.0", "ms", "50.0", "ms", "0.80x", "150", "100", "1.50x"),
    ]
    assert "at 512: OOM" in lines[3]
    assert "rest on ours alone" in lines[4]


def test_where_ours_has_no_figure_there_is_no_ratio() -> None:
    document = opinion_document(ANSWER, None)

    assert document["points"][0]["ratios"] == {"tpot": None, "ttft": None, "output_tokens_s": None}
    assert lines_of(opinion_section(ANSWER, None))[2].split()[3] == "-"


def test_our_first_token_without_a_band_is_not_compared() -> None:
    unsure = replace(PREDICTION, bands=Bands(tpot=BAND, throughput=BAND))

    assert opinion_document(ANSWER, unsure)["points"][0]["ratios"] == {
        "tpot": 0.75,
        "ttft": None,
        "output_tokens_s": 1.5,
    }
    assert lines_of(opinion_section(ANSWER, unsure))[2].split()[6:10] == ["40.0", "ms", "-", "-"]


def test_a_document_has_figures_and_ratios() -> None:
    document = opinion_document(ANSWER, PREDICTION)

    assert document["source"] == "aiconfigurator 0.12.0"
    assert document["points"][0]["tpot_s"] == 0.006
    assert document["points"][0]["ratios"]["output_tokens_s"] == 1.5
    assert document["points"][1]["reason"].startswith("OOM")


def test_no_opinion_is_its_reason_everywhere() -> None:
    page = PlanPage(plan=PLAN, outlook=OUTLOOK, opinion=UNKNOWN)

    assert "opinion    aiconfigurator has none: it does not support A10G" in page_text(page)
    assert page_document(page)["second_opinion"]["reason"] == "it does not support A10G"
    assert "aiconfigurator has none: it does not support A10G" in plan_html(page)


def test_a_page_shows_the_opinion_and_escapes_it() -> None:
    html = plan_html(PlanPage(plan=PLAN, outlook=OUTLOOK, opinion=ANSWER))

    assert "Second opinion" in html
    assert "6.0 ms" in html
    assert "<b>does not fit</b>" not in html


def test_a_plan_that_nobody_else_was_asked_about_has_no_such_part() -> None:
    page = PlanPage(plan=PLAN, outlook=OUTLOOK)

    assert page_document(page)["second_opinion"] is None
    assert "opinion" not in page_text(page)
    assert "Second opinion" not in plan_html(page)
