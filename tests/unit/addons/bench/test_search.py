"""Searches over concurrency on made servers, whose answers are known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.addons.bench.search import (
    SearchPoint,
    SearchResult,
    find_knee,
    find_max_concurrency,
    limits_by_tag,
    point_of,
)
from packager.addons.bench.search_history import history_document
from packager.core.bench import BenchLoad, Limits
from tests.support.cases import Case, cases, read_tables

TABLES = read_tables(__file__)
LIMITS = Limits(ttft_ms=500)
Server = Callable[[int], SearchPoint]


def server(
    ttft_ms: Callable[[int], float], *, noise: float = 0.0, seed: int = 0, errors_above: int = 10**9
) -> Server:
    """Make a server with a time to first token; its answers take ten times as long."""
    chance = random.Random(seed)

    def measure(concurrency: int) -> SearchPoint:
        ttft = ttft_ms(concurrency) * chance.lognormvariate(0, noise)
        return SearchPoint(
            concurrency=concurrency,
            output_token_throughput=100 * concurrency / ttft * 1e3,
            latency_ms=10 * ttft,
            observed={
                "time_to_first_token": ttft,
                "request_error_rate": 5.0 if concurrency > errors_above else 0.0,
            },
        )

    return measure


def until(boundary: int) -> Server:
    """Make a server that is within the limit up to a concurrency, and far beyond it after."""
    return server(lambda concurrency: 100.0 if concurrency <= boundary else 5000.0)


def saturating(knee: float, *, noise: float = 0.0, seed: int = 0) -> Server:
    """Make a server that is linear up to its knee, and full from there."""
    chance = random.Random(seed)

    def measure(concurrency: int) -> SearchPoint:
        throughput = 50 * min(concurrency, knee) * chance.lognormvariate(0, noise)
        return SearchPoint(
            concurrency=concurrency,
            output_token_throughput=throughput,
            latency_ms=1e3 * 100 * concurrency / throughput,  # Little's law, 100 tokens each
            observed={"request_error_rate": 0.0},
        )

    return measure


def made(told: Mapping[str, Any]) -> Server:
    """Make the server that a row of the corpus tells of."""
    if "until" in told:
        return until(told["until"])
    if "knee" in told:
        return saturating(told["knee"])
    flat, each = told.get("flat_ms", 0.0), told.get("each_ms", 0.0)
    errors_above = told.get("errors_above", 10**9)
    return server(lambda concurrency: flat + each * concurrency, errors_above=errors_above)


def order_of(found: SearchResult) -> list[int]:
    return [trial.point.concurrency for trial in found.trials]


@cases("searches")
def test_a_search_ends_where_the_server_does(case: Case) -> None:
    measure, settings = made(case["server"]), case.get("settings", {})
    done = (
        find_knee(measure, **settings)
        if "knee" in case["server"]
        else find_max_concurrency(measure, LIMITS, **settings)
    )

    order = order_of(done)
    assert case.get("tried", order) == order
    assert order[: len(case.get("begins", ()))] == case.get("begins", [])
    assert {name: getattr(done.boundary, name) for name in case["found"]} == case["found"]
    assert not any(getattr(done.boundary, name) is not None for name in case.get("lacks", ()))
    assert (done.reason, done.objective) == (case["reason"], pytest.approx(case.get("objective")))


def test_a_metric_that_is_missing_keeps_no_limit() -> None:
    def measure(concurrency: int) -> SearchPoint:
        return SearchPoint(
            concurrency=concurrency,
            output_token_throughput=1.0,
            observed={"request_error_rate": 0.0, "time_to_first_token": None},
        )

    found = find_max_concurrency(measure, LIMITS)

    assert found.reason == "no-pass-in-range"
    assert (found.boundary.breach, found.boundary.breach_value) == ("time_to_first_token", None)


def test_a_hiccup_below_the_boundary_is_forgiven() -> None:
    inner, calls = until(100), []

    def measure(concurrency: int) -> SearchPoint:
        calls.append(concurrency)
        return until(0)(concurrency) if calls == [1, 2, 4, 8] else inner(concurrency)

    found = find_max_concurrency(measure, LIMITS)

    assert (found.boundary.feasible, found.boundary.infeasible) == (100, 101)
    assert order_of(found)[:9] == [1, 2, 4, 8, 6, 7, 8, 8, 16]
    assert [trial.number for trial in found.trials if trial.is_contradicted] == [6]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(boundary=st.integers(0, 1100), start=st.integers(1, 64))
def test_it_finds_what_measuring_every_concurrency_finds(boundary: int, start: int) -> None:
    measure = until(boundary)
    feasible = [n for n in range(1, 1025) if not measure(n).observed["time_to_first_token"] > 500]

    found = find_max_concurrency(measure, LIMITS, start=start)

    assert found.boundary.feasible == max(feasible, default=None)
    assert len(found.trials) <= 2 * math.log2(max(boundary, start, 2)) + 5


@settings(max_examples=60, deadline=None, derandomize=True)
@given(capacity=st.integers(8, 400), seed=st.integers(0, 10**6))
def test_with_noise_both_sides_of_the_answer_are_near_the_limit(capacity: int, seed: int) -> None:
    def true_ttft(concurrency: int) -> float:
        return 500 * concurrency / capacity

    found = find_max_concurrency(server(true_ttft, noise=0.03, seed=seed), LIMITS)

    assert found.reason == "boundary"
    assert found.boundary.feasible is not None
    assert abs(found.boundary.feasible / capacity - 1) <= 0.12 + 1 / capacity
    assert len(found.trials) <= 40


def test_points_are_read_from_loads_in_the_statistics_of_aiperf() -> None:
    found = point_of(BenchLoad.model_validate(TABLES["load"]))

    assert found == SearchPoint(
        concurrency=4, output_token_throughput=320, latency_ms=1000, observed=TABLES["observed"]
    )


def test_a_load_without_any_request_keeps_no_limit() -> None:
    load = BenchLoad(concurrency=4, requests=0, answered=0, seconds=10, metrics={})

    assert point_of(load).observed["request_error_rate"] == 100.0


def test_a_rate_cannot_be_searched() -> None:
    load = BenchLoad(rate=2.5, requests=1, answered=1, seconds=10, metrics={})

    with pytest.raises(ValueError, match="not with a rate"):
        point_of(load)


def test_limits_are_kept_in_one_order() -> None:
    found = limits_by_tag(Limits(latency_ms=9000, tpot_ms=50))
    assert [[*item] for item in found.items()] == TABLES["limits_by_tag"]


def test_a_server_that_answers_nothing_has_no_knee() -> None:
    def measure(concurrency: int) -> SearchPoint:
        return SearchPoint(
            concurrency=concurrency,
            output_token_throughput=None,
            observed={"request_error_rate": 100.0},
        )

    found = find_knee(measure, most=16)

    assert (found.boundary.feasible, found.reason) == (None, "no-pass-in-range")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(knee=st.integers(2, 500), seed=st.integers(0, 10**6))
def test_with_noise_the_knee_is_found_to_the_width_of_the_grid(knee: int, seed: int) -> None:
    found = find_knee(saturating(knee, noise=0.03, seed=seed))

    assert found.boundary.feasible is not None
    assert knee / 1.6 <= found.boundary.feasible <= knee * 1.6 + 1
    assert len(found.trials) <= math.log2(knee) + 6


def test_a_search_is_written_as_aiperf_writes_it() -> None:
    document = history_document(find_max_concurrency(until(2), LIMITS))

    assert {name: document[name] for name in TABLES["history"]} == TABLES["history"]
    assert document["iterations"][2] == TABLES["third_iteration"]
    assert document["config"]["sla_filters"][0] == TABLES["first_filter"]


def test_a_search_that_finds_nothing_says_so_in_aiperfs_words() -> None:
    document = history_document(find_max_concurrency(until(0), LIMITS))

    assert document["boundary_summary"]["feasible_max"] is None
    assert document["boundary_summary"]["infeasible_min"]["value"] == 1
    assert document["best_trials"] is None
    assert document["convergence_reason"] == "monotonic_no_pass_in_range"
