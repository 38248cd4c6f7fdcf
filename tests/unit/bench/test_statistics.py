"""Percentiles and deviations are numpy's."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.bench.statistics import PERCENTILES, summarize
from tests.support.known import known


def test_the_deviation_is_that_of_the_population() -> None:
    metric = known(summarize([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], "ms"))

    assert (metric.std, metric.avg, metric.sum, metric.count) == (2.0, 5.0, 40.0, 8)
    assert (metric.min, metric.max, metric.unit) == (2.0, 9.0, "ms")


def test_without_values_there_is_no_metric() -> None:
    assert summarize([], "ms") is None


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.lists(st.floats(min_value=0, max_value=1e7), min_size=1, max_size=60))
def test_numpy_computes_the_same(values: list[float]) -> None:
    metric = known(summarize(values, "ms"))

    expected = numpy.percentile(numpy.array(values), PERCENTILES, method="linear")
    found = [getattr(metric, f"p{percent}") for percent in PERCENTILES]
    assert found == pytest.approx(list(expected), rel=1e-9, abs=1e-6)
    assert metric.std == pytest.approx(float(numpy.std(values)), rel=1e-6, abs=1e-6)
    assert metric.avg == pytest.approx(float(numpy.mean(values)), rel=1e-9, abs=1e-6)
