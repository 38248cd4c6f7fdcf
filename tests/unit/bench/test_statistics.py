"""Percentiles and deviations are numpy's."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.bench.statistics import PERCENTILES, percentile, summarize


def test_percentiles_lie_on_the_line_between_two_values() -> None:
    assert percentile([1.0, 2.0, 3.0, 10.0], 50) == 2.5
    assert percentile([1.0, 2.0, 3.0, 10.0], 90) == pytest.approx(7.9)
    assert percentile([4.0], 99) == 4.0


def test_the_deviation_is_that_of_the_population() -> None:
    metric = summarize([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], "ms")

    assert metric is not None
    assert (metric.std, metric.avg, metric.sum, metric.count) == (2.0, 5.0, 40.0, 8)
    assert (metric.min, metric.max, metric.unit) == (2.0, 9.0, "ms")


def test_one_value_deviates_by_nothing() -> None:
    metric = summarize([3.5], "ms")

    assert metric is not None
    assert (metric.std, metric.p1, metric.p99, metric.count) == (0.0, 3.5, 3.5, 1)


def test_without_values_there_is_no_metric() -> None:
    assert summarize([], "ms") is None


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.lists(st.floats(min_value=0, max_value=1e7), min_size=1, max_size=60))
def test_numpy_computes_the_same(values: list[float]) -> None:
    metric = summarize(values, "ms")

    assert metric is not None
    expected = numpy.percentile(numpy.array(values), PERCENTILES, method="linear")
    found = [getattr(metric, f"p{percent}") for percent in PERCENTILES]
    assert found == pytest.approx(list(expected), rel=1e-9, abs=1e-6)
    assert metric.std == pytest.approx(float(numpy.std(values)), rel=1e-6, abs=1e-6)
    assert metric.avg == pytest.approx(float(numpy.mean(values)), rel=1e-9, abs=1e-6)
