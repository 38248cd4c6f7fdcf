"""Labels of charts lie beside their points, over nothing else."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.core.reports.curves import Curves, PlacedDot, make_curves
from packager.core.reports.labels import DISTANCES, FONT, Box, Stroke, mark_box, text_box
from packager.core.reports.report import Chart, Dot, Series

VALUES = st.floats(min_value=1e-4, max_value=1e6)
NAMES = st.text("abcdefgWM0123456789.-", min_size=1, max_size=18)
IS = st.booleans()
DOT = st.builds(
    Dot,
    x=VALUES,
    y=VALUES,
    label=st.one_of(st.just(""), NAMES),
    title=NAMES,
    ringed=IS,
    x_range=st.none(),
    y_range=st.none(),
)
DOTS = st.lists(DOT, min_size=1, max_size=30)


def chart_of(dots: list[Dot]) -> Curves:
    series = (Series(number=0, name="", dots=tuple(dots)),)
    return make_curves(Chart(series=series, x_label="x", y_label="y", name="", table=""))


def dots_of(chart: Curves) -> tuple[PlacedDot, ...]:
    return chart.series[0].dots


def labels_of(chart: Curves) -> list[Box]:
    return [dot.label.box for dot in dots_of(chart) if dot.label]


@given(DOTS)
def test_no_label_covers_another_or_a_point_or_leaves_the_drawing(dots: list[Dot]) -> None:
    chart = chart_of(dots)
    boxes = labels_of(chart)

    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    points = [mark_box(dot.x, dot.y) for dot in dots_of(chart)]
    assert not any(box.overlaps(point) for box in boxes for point in points)
    assert all(box.is_within(Box(0, 0, chart.width, chart.height)) for box in boxes)


@given(DOTS)
def test_a_label_is_no_farther_from_its_point_than_the_farthest_place(dots: list[Dot]) -> None:
    for mark in dots_of(chart_of(dots)):
        if mark.label is None:
            continue
        box = mark.label.box
        across = max(box.left - mark.x, 0, mark.x - box.right)
        down = max(box.top - mark.y, 0, mark.y - box.bottom)
        assert math.hypot(across, down) <= DISTANCES[-1] + FONT


@given(DOTS)
def test_labels_of_an_axis_stand_apart(dots: list[Dot]) -> None:
    chart = chart_of(dots)
    below = [text_box(tick.label, tick.position, 0, "middle") for tick in chart.x_ticks]
    beside = [text_box(tick.label, 0, tick.position, "end") for tick in chart.y_ticks]

    for boxes in (below, beside):
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(-box.left <= chart.left - 8 for box in beside)


def test_a_single_point_is_labelled_at_its_upper_right() -> None:
    (mark,) = dots_of(chart_of([Dot(x=10, y=10, label="7", title="", ringed=True)]))

    assert mark.label is not None
    assert mark.label.anchor == "start"
    assert mark.label.box.left > mark.x
    assert mark.label.y < mark.y
    assert mark.label.leader is None


def test_points_that_share_a_place_give_way_to_the_ringed_one() -> None:
    wide = "a-very-long-name-of-an-instance-that-needs-the-whole-drawing"
    chart = chart_of(
        [Dot(x=10, y=10, label=wide, title=""), Dot(x=10, y=10, label="b", title="", ringed=True)]
    )

    assert [dot.label is not None for dot in dots_of(chart)] == [False, True]
    assert chart.unlabelled == 1


def test_points_without_a_name_have_no_label() -> None:
    chart = chart_of([Dot(x=1, y=1, title=""), Dot(x=9, y=9, label="b", title="")])

    assert [dot.label is not None for dot in dots_of(chart)] == [False, True]
    assert chart.unlabelled == 0


@pytest.mark.parametrize("count", [2, 6, 12])
def test_a_frontier_of_instances_keeps_most_of_its_names(count: int) -> None:
    dots = [
        Dot(x=10 * 1.3**n, y=0.01 * 1.5**n, label=f"g{n}e.24xlarge", title="", ringed=n == 0)
        for n in range(count)
    ]

    assert chart_of(dots).unlabelled <= count // 6


def test_an_axis_keeps_its_roundest_numbers() -> None:
    dots = [Dot(x=x, y=x, title="") for x in (96.5, 129)]

    assert "100" in [tick.label for tick in chart_of(dots).x_ticks]


@pytest.mark.parametrize(
    "stroke", [(0, 15, 30, 15), (12, 12, 18, 18), (15, 0, 15, 30), (0, 31, 31, 0)], ids=str
)
def test_a_stroke_crosses_what_it_runs_through(stroke: tuple[int, int, int, int]) -> None:
    assert Stroke(*stroke).crosses(Box(10, 13, 20, 20))


@pytest.mark.parametrize("stroke", [(0, 0, 9, 30), (15, 0, 15, 9), (0, 22, 22, 0)], ids=str)
def test_a_stroke_crosses_nothing_beside_it(stroke: tuple[int, int, int, int]) -> None:
    assert not Stroke(*stroke).crosses(Box(10, 13, 20, 20))


def test_a_label_leaves_the_line_free_where_it_can() -> None:
    chart = chart_of([Dot(x=10.0**n, y=10.0**n, label=f"name{n}", title="") for n in range(4)])
    points = [tuple(map(float, pair.split(","))) for pair in chart.series[0].line.split()]
    strokes = [Stroke(*start, *end) for start, end in itertools.pairwise(points)]

    assert chart.unlabelled == 0
    assert not any(stroke.crosses(box) for stroke in strokes for box in labels_of(chart))
