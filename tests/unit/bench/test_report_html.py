"""The page of a benchmark: whole, quiet, safe, and complete without script."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from packager.bench.report_html import bench_html, when_words, workload_words
from packager.core.bench import BenchWorkload
from tests.support.bench_reports import (
    REPORTS,
    drafts,
    even,
    failed,
    hostile,
    partly_failed,
    quantized,
    searched,
    tiny,
    twelve,
    unpriced,
)
from tests.unit.build.test_html import Outline


def page_of(name: str) -> str:
    return bench_html(REPORTS[name](), sources=("a.json",), command="packager report a.json")


def text_of(page: str) -> str:
    """Return what a reader reads, in lines."""
    body = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_is_whole_and_fetches_nothing(name: str) -> None:
    page = page_of(name)
    outline = Outline(page)

    assert outline.open == []
    assert not {"link", "img", "iframe", "object"} & set(outline.tags)
    assert not {"src", "style"} & {key for key, _ in outline.attributes}
    assert not {key for key, _ in outline.attributes if key.startswith("on")}
    assert all((value or "").startswith("#") for key, value in outline.attributes if key == "href")
    assert "url(" not in page
    assert "@import" not in page


@pytest.mark.parametrize("name", REPORTS)
def test_every_link_leads_to_a_part_of_the_page(name: str) -> None:
    attributes = Outline(page_of(name)).attributes
    places = [value for key, value in attributes if key == "id"]

    assert len(places) == len(set(places))
    assert {value for key, value in attributes if key == "href"} <= {f"#{one}" for one in places}
    labels = {value for key, value in attributes if key == "aria-labelledby"}
    assert labels <= set(places)


@pytest.mark.parametrize("name", REPORTS)
def test_every_table_has_a_caption_and_every_drawing_words(name: str) -> None:
    page = page_of(name)

    assert page.count("<table") == page.count("<caption>")
    assert not re.findall(r"<th(?![a-z])(?![^>]*scope=)", page)
    for drawing in re.findall(r"<svg[^>]*>", page):
        assert "aria-label=" in drawing or 'aria-hidden="true"' in drawing


@pytest.mark.parametrize("name", REPORTS)
def test_only_the_pages_own_style_and_script_may_run(name: str) -> None:
    page = page_of(name)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)

    assert policy.startswith("default-src &#39;none&#39;; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy


def test_names_and_messages_of_strangers_are_escaped() -> None:
    page = bench_html(
        hostile(),
        sources=("<script>alert(1)</script>",),
        command="packager report '<img src=x>'",
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


def test_one_load_that_is_best_of_several_goals_has_one_card() -> None:
    page = page_of("quantized")

    assert page.count("<article") == 2 + 3  # of goals, of variants
    assert "Cheapest per token, and most tokens a second" in page


def test_the_tables_of_sagemaker_are_there() -> None:
    text = text_of(page_of("quantized"))

    for heading in ("inter-token p50, ms", "tokenizer failed", "empty responses"):
        assert heading in text
    for heading in ("input tokens/s of a request", "output tokens of a request"):
        assert heading in text
    for heading in ("$/1M input", "$/1M output", "F1, output", "F2, output", "3:1 blend"):
        assert heading in text
    assert "catalog: SageMaker, us-east-1, 2026-10-01" in text


def test_the_table_of_drafts_is_there_for_drafts_alone() -> None:
    assert "acceptance length" in text_of(page_of("drafts"))
    assert "acceptance length" not in text_of(page_of("quantized"))


def test_points_have_intervals_and_the_front_is_ringed() -> None:
    page = bench_html(drafts())

    assert page.count('class="span"') == 24  # 12 points in two charts
    assert page.count('class="halo"') == 4
    assert "Bars are 95 % intervals over 3 rounds." in page
    assert "Ringed points are beaten by no other in speed and price." in page


def test_without_rounds_there_are_no_intervals() -> None:
    page = bench_html(unpriced())

    assert 'class="span"' not in page
    assert "Bars are" not in page
    assert "measured in too few rounds to tell noise" in page


def test_noise_is_marked_in_the_comparison() -> None:
    text = text_of(bench_html(even()))

    assert "Within noise" in text
    assert re.search(r"1\.00x \(0\.99–1\.01\) noise", text)


def test_without_prices_nothing_is_said_of_prices() -> None:
    page = bench_html(tiny())

    assert 'id="price"' not in page
    assert 'id="cost"' not in page
    assert "$" not in re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)


def test_limits_and_what_a_search_found_are_told() -> None:
    text = text_of(bench_html(quantized()))

    assert (
        "A request is good with the first token within 500 ms, each further one within 30" in text
    )
    assert (
        "awq: up to 24 requests at once are within the limits; 25 are not, by first token "
        "(p95 512 ms)." in text
    )
    assert "shop:awq: the knee is at 24 requests at once: more adds latency, not speed." in text_of(
        bench_html(searched())
    )


def test_predictions_stand_beside_measurements() -> None:
    text = text_of(bench_html(quantized()))

    assert "1 of 3 predictions are within their band." in text
    assert re.search(r"first token, ms 310 176 \+76 % ±40 % no", text)


def test_failures_are_counted_by_reason() -> None:
    text = text_of(bench_html(partly_failed()))

    assert "bf16: of 192 requests 26 failed, 4 came back empty, 2 could not be tokenized." in text
    assert "9 deadline no answer within 600 s" in text
    assert "HTTP 404: no model of this name" in text_of(bench_html(failed()))


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


def test_commands_can_be_copied() -> None:
    page = page_of("quantized")

    assert "To measure again" in page
    assert "packager report a.json" in text_of(page)
    assert bench_html(tiny()).count('class="copy"') == 0


def test_a_page_is_the_same_every_time() -> None:
    assert page_of("twelve") == page_of("twelve")


@pytest.mark.parametrize(("name", "most"), [("tiny", 32), ("quantized", 80), ("twelve", 220)])
def test_a_page_is_small(name: str, most: int) -> None:
    assert len(page_of(name).encode()) <= most * 1000


def test_times_and_requests_are_told_in_words() -> None:
    assert when_words("2026-09-01T12:30:00Z") == "2026-09-01 12:30 UTC"
    assert when_words("2026-09-01T12:30:00.5+00:00") == "2026-09-01 12:30 UTC"
    assert when_words("at noon") == "at noon"
    assert workload_words(BenchWorkload(name="chat")) == "chat"
    assert workload_words(BenchWorkload(name="", output_tokens=64)) == "64 tokens out"
