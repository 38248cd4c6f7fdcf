"""Charts of several series: told apart without colour, whole within their drawing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from packager.core.reports.curves import Curves, Linear, make_curves, shape_of
from packager.core.reports.report import Chart, Dot, Series


def series(number: int, *points: tuple[float, float], **changes: object) -> Series:
    dots = tuple(Dot(x=x, y=y, title=f"{x:g}, {y:g}", label=f"{x:g}", **changes) for x, y in points)  # type: ignore[arg-type]
    return Series(number=number, name=f"series {number}", dots=dots)


def drawn(*made: Series, **how: Any) -> Curves:
    chart = Chart(series=made, x_label="x", y_label="y", name="", table="", **how)
    return make_curves(chart)


def test_every_series_has_its_own_pair_of_colour_and_shape() -> None:
    chart = drawn(*(series(number, (1 + number, 1), (2 + number, 2)) for number in range(42)))
    outlines = ((one.colour, one.dots[0].outline) for one in chart.series)
    pairs = {(colour, re.sub(r"M[\d.]+ [\d.]+", "", outline)) for colour, outline in outlines}

    assert len(pairs) == 42
    assert shape_of(0) == shape_of(7)


def test_points_are_joined_in_their_order_and_lie_within_the_plot() -> None:
    chart = drawn(series(0, (1, 10), (2, 30), (4, 20)))
    (one,) = chart.series

    assert one.line == " ".join(f"{dot.x:g},{dot.y:g}" for dot in one.dots)
    assert [dot.x for dot in one.dots] == sorted(dot.x for dot in one.dots)
    for dot in one.dots:
        assert chart.left < dot.x < chart.width - chart.right
        assert chart.top < dot.y < chart.height - chart.bottom


def test_intervals_have_caps_and_fit() -> None:
    chart = drawn(series(0, (10, 10), x_range=(5.0, 20.0), y_range=(1.0, 100.0)))
    (dot,) = chart.series[0].dots
    numbers = [float(number) for number in re.findall(r"(?<![a-z])[\d.]+", dot.bars)]

    assert dot.bars.count("M") == 6
    assert all(0 <= number <= chart.width for number in numbers)


def test_without_intervals_there_are_no_bars() -> None:
    assert drawn(series(0, (1, 1))).series[0].dots[0].bars == ""


def test_given_steps_get_the_lines_of_the_grid() -> None:
    chart = drawn(series(0, (1, 1), (4, 2), (32, 3)), x_steps=(1, 4, 32))

    assert [tick.label for tick in chart.x_ticks] == ["1", "4", "32"]


def test_shares_are_drawn_evenly_and_may_be_zero() -> None:
    chart = drawn(series(0, (1, 0), (2, 5), (4, 10)), linear_y=True)
    low, middle, high = (dot.y for dot in chart.series[0].dots)

    assert low - middle == pytest.approx(middle - high)


def test_equal_values_have_a_scale() -> None:
    assert len(drawn(series(0, (1, 100), (2, 100)), linear_y=True).y_ticks) >= 2


@pytest.mark.parametrize("span", [(0.0, 1.0), (93.7, 100.7), (-0.4, 0.3), (99.99, 100.01)])
def test_an_even_scale_has_some_round_lines(span: tuple[float, float]) -> None:
    ticks = Linear(*span, 0.0, 300.0).ticks()

    assert 3 <= len(ticks) <= 8
    assert all(0 <= tick.position <= 300 for tick in ticks)


def test_names_stand_at_the_ends_of_lines_in_the_series_colour() -> None:
    chart = drawn(series(0, (1, 1), (2, 2)), series(1, (1, 10), (2, 20)))

    assert [(label.text, colour) for label, colour in chart.names] == [
        ("series 0", 0),
        ("series 1", 1),
    ]
