"""Reading metrics: names, labels with anything in them, numbers; nothing else."""

from __future__ import annotations

import time

import pytest

from packager.cli.serving.prometheus import Reading, read_metrics
from tests.support.cases import cases


@cases("a_line_is_a_name_labels_and_a_number")
def test_a_line_is_a_name_labels_and_a_number(line: str, expected: Reading) -> None:
    assert list(read_metrics(f"# HELP x y\n# TYPE x counter\n\n{line}\n")) == [expected]


@pytest.mark.parametrize("line", ["<html>", "a{b=1 2", "a", "a one", 'a{b="c} 1'])
def test_what_is_no_metric_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        list(read_metrics(line))


@cases("a_line_that_is_no_metric_is_refused_in_linear_time")
def test_a_line_that_is_no_metric_is_refused_in_linear_time(line: str) -> None:
    started = time.process_time()

    with pytest.raises(ValueError, match=r"no metric|could not convert"):
        list(read_metrics(line))

    assert time.process_time() - started < 5.0
