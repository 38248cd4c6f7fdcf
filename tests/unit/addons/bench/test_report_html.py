"""The page of a benchmark: whole, quiet, safe, and complete without script."""

from __future__ import annotations

import re

import pytest

from packager.addons.bench.report_page import when_words, workload_words
from packager.core.bench import BenchWorkload
from tests.support.bench_reports import REPORTS, hostile, partly_failed, twelve
from tests.support.cases import Case, cases
from tests.support.html_pages import Outline, check_page
from tests.support.report_values import bench_html


def page_of(name: str) -> str:
    return bench_html(REPORTS[name](), sources=("a.json",), command="packager report a.json")


def text_of(page: str) -> str:
    """Return what a reader reads, in lines."""
    body = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_is_whole_fetches_nothing_and_runs_its_own_script_alone(name: str) -> None:
    check_page(page_of(name))


@pytest.mark.parametrize("name", REPORTS)
def test_every_link_leads_to_a_part_of_the_page(name: str) -> None:
    attributes = Outline(page_of(name)).attributes
    places = [value for key, value in attributes if key == "id"]

    assert len(places) == len(set(places))
    assert {value for key, value in attributes if key == "href"} <= {f"#{one}" for one in places}
    assert {value for key, value in attributes if key == "aria-labelledby"} <= set(places)


@pytest.mark.parametrize("name", REPORTS)
def test_every_table_has_a_caption_and_every_drawing_words(name: str) -> None:
    page = page_of(name)

    assert page.count("<table") == page.count("<caption>")
    assert not re.findall(r"<th(?![a-z])(?![^>]*scope=)", page)
    for drawing in re.findall(r"<svg[^>]*>", page):
        assert "aria-label=" in drawing or 'aria-hidden="true"' in drawing


def test_names_and_messages_of_strangers_are_escaped() -> None:
    page = bench_html(
        hostile(), sources=("<script>alert(1)</script>",), command="packager report '<img src=x>'"
    )
    outline = Outline(page)

    assert page.count("<script") == 1  # ours
    assert "<img" not in page
    assert "&lt;script&gt;" in page
    assert not {key for key, _ in outline.attributes if key.startswith("on")}
    assert not {"\x1b", "\u202e"} & set(page)


def test_the_decision_comes_first() -> None:
    text = text_of(page_of("quantized"))

    assert text.index("awq costs least, $0.32") < text.index("Best by goal")
    for later, earlier in zip(
        ("Cost under load", "Quality against price", "Latency", "What was measured on what"),
        ("Speed under load", "Cost under load", "Quality against price", "Latency"),
        strict=True,
    ):
        assert text.rindex(f" {earlier} ") < text.rindex(f" {later} ")


@cases("pages")
def test_a_page_shows_what_was_found(case: Case) -> None:
    page = page_of(case["report"])
    quiet = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)

    assert [words for words in case.get("text", ()) if words not in text_of(page)] == []
    assert {part: page.count(part) for part in case.get("counts", ())} == case.get("counts", {})
    assert [part for part in case.get("lacks", ()) if part in quiet] == []


def test_a_variant_that_was_not_measured_says_why() -> None:
    found = partly_failed()
    broken = found.variants[1].model_copy(update={"failure": "the container ended with status 1"})
    page = bench_html(found.model_copy(update={"variants": (found.variants[0], broken)}))

    assert "Not measured</dt><dd" in page
    assert "the container ended with status 1" in page


def test_many_variants_are_drawn_by_letters() -> None:
    page = bench_html(twelve())

    assert "<b>L</b> fp8-medusa" in page
    assert len(set(re.findall(r'id="v\d+" class="dot (c\d)" d="([^"]+)"', page))) == 12


def test_a_page_is_the_same_every_time_and_without_a_command_none_can_be_copied() -> None:
    assert page_of("twelve") == page_of("twelve")
    assert 'class="copy"' in page_of("tiny")
    assert 'class="copy"' not in bench_html(REPORTS["tiny"]())


def test_times_and_requests_are_told_in_words() -> None:
    assert when_words("2026-09-01T12:30:00Z") == "2026-09-01 12:30 UTC"
    assert when_words("2026-09-01T12:30:00.5+00:00") == "2026-09-01 12:30 UTC"
    assert when_words("at noon") == "at noon"
    assert workload_words(BenchWorkload(name="chat")) == "chat"
    assert workload_words(BenchWorkload(name="", output_tokens=64)) == "64 tokens out"
