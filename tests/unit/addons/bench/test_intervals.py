"""Intervals against scipy 1.17, such as `scipy.stats.t.ppf(0.975, freedom)`."""

from __future__ import annotations

import pytest

from packager.addons.bench.intervals import mean_interval, t_probability, t_quantile
from tests.support.cases import cases


@cases("quantiles")
def test_quantiles_are_those_of_students_distribution(freedom: int, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=1e-6)


def test_other_confidence_has_other_quantiles() -> None:
    assert t_quantile(2, 0.99) == pytest.approx(9.924843, abs=1e-6)
    assert t_quantile(5, 0.5) == pytest.approx(0.726687, abs=1e-6)


def test_nothing_lies_between_zero_and_zero() -> None:
    assert t_probability(0.0, 1) == t_probability(0.0, 2) == 0.0


def test_an_interval_has_its_mean_in_the_middle() -> None:
    # scipy.stats.t.interval(0.95, 3, loc=11.5, scale=scipy.stats.sem([10, 11, 12, 13]))
    found = mean_interval([10.0, 11.0, 12.0, 13.0])

    assert found.mean == 11.5
    assert (found.low, found.high) == pytest.approx((9.445739743, 13.554260257))


def test_equal_measurements_have_an_interval_without_width() -> None:
    found = mean_interval([7.0, 7.0, 7.0])

    assert (found.low, found.mean, found.high) == (7.0, 7.0, 7.0)
