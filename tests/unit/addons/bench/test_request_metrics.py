"""Metrics of one answer, with AIPerf's names and definitions."""

from __future__ import annotations

from typing import Any

import pytest

from packager.addons.bench.request_metrics import (
    chunk_latencies,
    has_content,
    is_good,
    is_other_length,
    request_metrics,
)
from packager.core.bench import Limits
from tests.support.cases import Case, cases
from tests.unit.addons.bench.loads import answer as answered
from tests.unit.addons.bench.loads import failure


@cases("metrics")
def test_metrics_of_an_answer(case: Case) -> None:
    metrics, found = request_metrics(answered(**case["answer"])), case["found"]

    assert {tag: metrics.get(tag) for tag in found} == pytest.approx(found)
    assert not set(case.get("lacks", ())) & set(metrics)
    assert "whole" not in case or set(metrics) == set(found)


def test_gaps_are_between_pieces() -> None:
    whole = answered(at=(), ended=2.0, text="x", is_streamed=False)

    assert chunk_latencies(answered(sent=1.0, at=(0.1, 0.15, 0.21))) == pytest.approx([50.0, 60.0])
    assert chunk_latencies(whole) == []


@cases("lengths")
def test_answers_of_another_length_than_asked_for(
    answer: dict[str, Any], is_other: bool, percent: float | None
) -> None:
    one = answered(**answer)

    assert is_other_length(one) is is_other
    assert request_metrics(one).get("osl_mismatch_diff_pct") == pytest.approx(percent)


@cases("good")
def test_a_request_is_good_within_every_limit(
    metrics: dict[str, float], limits: dict[str, float], expected: bool
) -> None:
    assert is_good(metrics, Limits(**limits)) is expected


@cases("content")
def test_only_whole_answers_with_content_count(answer: dict[str, Any], expected: bool) -> None:
    assert has_content(answered(**answer)) is expected
    assert not has_content(failure())
