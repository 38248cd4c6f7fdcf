"""Percentiles and deviations are numpy's."""

from __future__ import annotations

from packager.addons.bench.statistics import summarize
from tests.support.known import known


def test_the_deviation_is_that_of_the_population() -> None:
    metric = known(summarize([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], "ms"))

    assert (metric.std, metric.avg, metric.sum, metric.count) == (2.0, 5.0, 40.0, 8)
    assert (metric.min, metric.max, metric.unit) == (2.0, 9.0, "ms")


def test_without_values_there_is_no_metric() -> None:
    assert summarize([], "ms") is None
