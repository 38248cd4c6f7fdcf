"""Pages that are kept, mailed and printed: whole, quiet and safe."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from packager.core.findings import Finding
from packager.core.techniques import Rejected
from packager.planning.ranking import Skipped, rank
from packager.reports.html import plan_html, ranking_html
from packager.reports.plan import PlanPage
from tests.reports.samples import option_on, outlook_of, plan_on

PLAN = plan_on("ml.g5.12xlarge", family="lmi")
HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


class Outline(HTMLParser):
    """Collects tags and attributes, and checks that what is opened is closed."""

    VOID = frozenset({"meta", "line", "circle", "polyline", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def pages() -> dict[str, str]:
    options = [option_on(name, "cost") for name in ("ml.g5.12xlarge", "ml.p5.48xlarge")]
    ranking = rank(options, [Skipped("ml.g4dn.xlarge", "too small")], "cost")
    return {
        "plan": plan_html(
            PlanPage(plan=PLAN, outlook=outlook_of(PLAN), menu=(("cost", options[0]),))
        ),
        "plan without figures": plan_html(PlanPage(plan=PLAN)),
        "ranking": ranking_html(ranking, "some model"),
        "empty ranking": ranking_html(rank([], [Skipped("a", "b")], "latency"), "some model"),
    }


@pytest.mark.parametrize("name", pages())
def test_a_page_is_whole_and_fetches_nothing(name: str) -> None:
    page = pages()[name]
    outline = Outline(page)

    assert outline.open == []
    assert not {"script", "link", "img", "iframe", "object"} & set(outline.tags)
    assert not {"src", "href", "onclick", "onload"} & {key for key, _ in outline.attributes}
    assert "url(" not in page
    assert "@import" not in page
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
    for page in (
        plan_html(PlanPage(plan=plan)),
        ranking_html(rank([], [Skipped(HOSTILE, HOSTILE)], "cost"), HOSTILE),
    ):
        outline = Outline(page)

        assert "<script" not in page
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

    assert page.count('class="ring"') == 1
    assert "tokens per second for one reader" in page


def test_a_page_is_the_same_every_time() -> None:
    assert pages() == pages()
