"""Reading metrics: names, labels with anything in them, numbers; nothing else."""

from __future__ import annotations

import math
import time

import pytest

from packager.serving.prometheus import Reading, read_metrics
from tests.support.cases import cases_of

cases = cases_of(__file__)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("up 1", Reading(name="up", labels={}, value=1.0)),
        ("up{} 1 1395066363000", Reading(name="up", labels={}, value=1.0)),
        (
            'vllm:n_total{engine="0",position="3"} 1.5e+03',
            Reading(name="vllm:n_total", labels={"engine": "0", "position": "3"}, value=1500.0),
        ),
        (
            r'a{path="C:\\x",said="\"}, {\n",} 2',
            Reading(name="a", labels={"path": "C:\\x", "said": '"}, {\n'}, value=2.0),
        ),
        ('a{le="+Inf"} +Inf', Reading(name="a", labels={"le": "+Inf"}, value=math.inf)),
    ],
    ids=["bare", "time", "labels", "escapes", "infinite"],
)
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
