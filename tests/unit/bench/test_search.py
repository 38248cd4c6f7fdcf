"""Searches over concurrency on made servers, whose answers are known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.bench.search import (
    Point,
    find_knee,
    find_max_concurrency,
    limits_by_tag,
    point_of,
    power,
)
from packager.bench.search_history import history_document
from packager.core.bench import BenchError, BenchLoad, Limits, Metric

LIMITS = Limits(ttft_ms=500)
Server = Callable[[int], Point]


def server(
    ttft_ms: Callable[[int], float], *, noise: float = 0.0, seed: int = 0, errors_above: int = 10**9
) -> Server:
    """Make a server with a time to first token; its answers take ten times as long."""
    chance = random.Random(seed)

    def measure(concurrency: int) -> Point:
        ttft = ttft_ms(concurrency) * chance.lognormvariate(0, noise)
        return Point(
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


def queue(capacity: float) -> Server:
    """Make a server of which one request waits for others as in M/D/1, until it is full."""

    def ttft_ms(concurrency: int) -> float:
        load = min(concurrency / capacity, 0.9999)
        return 50 * (1 + load / (2 * (1 - load)))

    return server(ttft_ms)


def tried(found) -> list[int]:
    return [trial.point.concurrency for trial in found.trials]


def test_it_doubles_and_then_halves_and_confirms_both_sides() -> None:
    found = find_max_concurrency(until(11), LIMITS)

    assert tried(found) == [1, 2, 4, 8, 16, 12, 10, 11, 12, 11]
    assert (found.boundary.feasible, found.boundary.infeasible) == (11, 12)
    assert (found.boundary.breach, found.boundary.breach_value) == ("time_to_first_token", 5000.0)
    assert (found.reason, found.objective) == ("boundary", 11000.0)


def test_it_begins_where_it_is_told() -> None:
    found = find_max_concurrency(until(11), LIMITS, start=32)

    assert tried(found)[:4] == [32, 16, 8, 12]
    assert found.boundary.feasible == 11


def test_a_server_that_keeps_all_limits_has_no_upper_bound() -> None:
    found = find_max_concurrency(until(1000), LIMITS, most=48)

    assert tried(found) == [1, 2, 4, 8, 16, 32, 48, 48]
    assert (found.boundary.feasible, found.boundary.infeasible) == (48, None)
    assert found.reason == "no-failure-in-range"


def test_a_server_that_is_too_slow_for_one_request_has_no_lower_bound() -> None:
    found = find_max_concurrency(until(0), LIMITS, start=4)

    assert tried(found) == [4, 2, 1, 1]
    assert (found.boundary.feasible, found.boundary.infeasible) == (None, 1)
    assert (found.reason, found.objective) == ("no-pass-in-range", None)


def test_errors_over_one_percent_break_the_limits_as_well() -> None:
    found = find_max_concurrency(server(lambda _: 10.0, errors_above=6), LIMITS)

    assert found.boundary.feasible == 6
    assert (found.boundary.breach, found.boundary.breach_value) == ("request_error_rate", 5.0)


def test_a_value_equal_to_its_limit_does_not_keep_it() -> None:
    found = find_max_concurrency(server(lambda concurrency: 100.0 * concurrency), LIMITS)

    assert (found.boundary.feasible, found.boundary.breach_value) == (4, 500.0)


def test_a_metric_that_is_missing_keeps_no_limit() -> None:
    def measure(concurrency: int) -> Point:
        return Point(
            concurrency=concurrency,
            output_token_throughput=1.0,
            observed={"request_error_rate": 0.0, "time_to_first_token": None},
        )

    found = find_max_concurrency(measure, LIMITS)

    assert found.reason == "no-pass-in-range"
    assert (found.boundary.breach, found.boundary.breach_value) == ("time_to_first_token", None)


def test_a_value_near_its_limit_is_measured_again_at_once() -> None:
    found = find_max_concurrency(server(lambda concurrency: 61.5 * concurrency), LIMITS)

    # 8 at a time take 492 ms
    assert tried(found)[:6] == [1, 2, 4, 8, 8, 16]
    assert found.boundary.feasible == 8


def test_a_hiccup_below_the_boundary_is_forgiven() -> None:
    inner, calls = until(100), []

    def measure(concurrency: int) -> Point:
        calls.append(concurrency)
        return until(0)(concurrency) if calls == [1, 2, 4, 8] else inner(concurrency)

    found = find_max_concurrency(measure, LIMITS)

    assert (found.boundary.feasible, found.boundary.infeasible) == (100, 101)
    assert tried(found)[:9] == [1, 2, 4, 8, 6, 7, 8, 8, 16]
    assert [trial.number for trial in found.trials if trial.is_contradicted] == [6]


def test_no_more_is_measured_than_allowed() -> None:
    found = find_max_concurrency(until(300), LIMITS, most_measurements=7)

    assert len(found.trials) == 7
    assert (found.boundary.feasible, found.boundary.infeasible) == (64, None)
    assert found.reason == "budget"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(boundary=st.integers(0, 1100), start=st.integers(1, 64))
def test_it_finds_what_measuring_every_concurrency_finds(boundary: int, start: int) -> None:
    measure = until(boundary)
    feasible = [n for n in range(1, 1025) if not measure(n).observed["time_to_first_token"] > 500]

    found = find_max_concurrency(measure, LIMITS, start=start)

    assert found.boundary.feasible == max(feasible, default=None)
    assert len(found.trials) <= 2 * math.log2(max(boundary, start, 2)) + 5


@settings(max_examples=60, deadline=None, derandomize=True)
@given(capacity=st.floats(1.5, 900))
def test_it_finds_the_boundary_of_a_queue(capacity: float) -> None:
    measure = queue(capacity)
    feasible = [n for n in range(1, 1025) if measure(n).observed["time_to_first_token"] < 500]

    found = find_max_concurrency(measure, LIMITS)

    assert found.boundary.feasible == max(feasible)
    assert len(found.trials) <= 3 * math.log2(max(feasible) + 2) + 6


@settings(max_examples=60, deadline=None, derandomize=True)
@given(capacity=st.integers(8, 400), seed=st.integers(0, 10**6))
def test_with_noise_both_sides_of_the_answer_are_near_the_limit(capacity: int, seed: int) -> None:
    def true_ttft(concurrency: int) -> float:
        return 500 * concurrency / capacity

    measure = server(true_ttft, noise=0.03, seed=seed)

    found = find_max_concurrency(measure, LIMITS)

    assert found.reason == "boundary"
    assert found.boundary.feasible is not None
    assert abs(found.boundary.feasible / capacity - 1) <= 0.12 + 1 / capacity
    assert len(found.trials) <= 40


def test_points_are_read_from_loads_in_the_statistics_of_aiperf() -> None:
    load = BenchLoad(
        concurrency=4,
        requests=50,
        answered=49,
        seconds=10,
        metrics={
            "time_to_first_token": Metric(unit="ms", avg=100, p95=180, p99=200),
            "inter_token_latency": Metric(unit="ms", avg=10, p95=18, p99=20),
            "request_latency": Metric(unit="ms", avg=1000, p95=1800, p99=2000),
            "output_token_throughput": Metric(unit="tokens/sec", avg=320),
        },
        errors=(BenchError(kind="cut", reason="no end", count=1),),
    )

    assert point_of(load) == Point(
        concurrency=4,
        output_token_throughput=320,
        latency_ms=1000,
        observed={
            "time_to_first_token": 180,
            "inter_token_latency": 18,
            "request_latency": 2000,
            "request_error_rate": 2.0,
        },
    )


def test_a_load_without_any_request_keeps_no_limit() -> None:
    load = BenchLoad(concurrency=4, requests=0, answered=0, seconds=10, metrics={})

    assert point_of(load).observed["request_error_rate"] == 100.0


def test_a_rate_cannot_be_searched() -> None:
    load = BenchLoad(rate=2.5, requests=1, answered=1, seconds=10, metrics={})

    with pytest.raises(ValueError, match="not with a rate"):
        point_of(load)


def test_limits_are_kept_in_one_order() -> None:
    assert list(limits_by_tag(Limits(latency_ms=9000, tpot_ms=50)).items()) == [
        ("inter_token_latency", 50),
        ("request_latency", 9000),
        ("request_error_rate", 1.0),
    ]


def saturating(knee: float, *, noise: float = 0.0, seed: int = 0) -> Server:
    """Make a server that is linear up to its knee, and full from there."""
    chance = random.Random(seed)

    def measure(concurrency: int) -> Point:
        throughput = 50 * min(concurrency, knee) * chance.lognormvariate(0, noise)
        return Point(
            concurrency=concurrency,
            output_token_throughput=throughput,
            latency_ms=1e3 * 100 * concurrency / throughput,  # Little's law, 100 tokens each
            observed={"request_error_rate": 0.0},
        )

    return measure


def test_the_knee_is_where_a_server_becomes_full() -> None:
    found = find_knee(saturating(16))

    assert tried(found) == [1, 2, 4, 8, 16, 32, 11, 23]
    assert (found.boundary.what, found.boundary.feasible, found.boundary.infeasible) == (
        "knee",
        16,
        23,
    )
    assert (found.reason, found.objective) == ("knee", 800.0)


def test_the_knee_is_refined_once_between_its_neighbours() -> None:
    found = find_knee(saturating(23))

    assert tried(found) == [1, 2, 4, 8, 16, 32, 64, 23, 45]
    assert found.boundary.feasible == 23


def test_power_is_throughput_over_latency() -> None:
    point = Point(concurrency=2, output_token_throughput=100, latency_ms=4000)

    assert power(point) == 25.0


def test_a_server_that_is_never_full_has_no_knee() -> None:
    found = find_knee(saturating(5000), most=64)

    assert tried(found) == [1, 2, 4, 8, 16, 32, 64]
    assert (found.boundary.feasible, found.reason) == (None, "no-knee-in-range")


def test_a_server_that_answers_nothing_has_no_knee() -> None:
    def measure(concurrency: int) -> Point:
        return Point(
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

    assert document["boundary_summary"] == {
        "swept_dim_path": "phases.profiling.concurrency",
        "feasible_max": {"value": 2, "iteration_idx": 5, "objective_value": 2000.0},
        "infeasible_min": {
            "value": 3,
            "iteration_idx": 4,
            "first_breach": {
                "metric_tag": "time_to_first_token",
                "stat": "p95",
                "op": "lt",
                "threshold": 500.0,
                "observed": 5000.0,
            },
        },
    }
    assert document["iterations"][2] == {
        "iteration_idx": 2,
        "variation_values": {"phases.profiling.concurrency": 4},
        "objective_values": [80.0],
        "feasible": False,
        "non_monotonic_warning": False,
    }
    assert document["convergence_reason"] == "monotonic_precision_reached"
    assert document["config"]["sla_filters"][0] == {
        "metric_tag": "time_to_first_token",
        "stat": "p95",
        "op": "lt",
        "threshold": 500.0,
    }


def test_a_search_that_finds_nothing_says_so_in_aiperfs_words() -> None:
    document = history_document(find_max_concurrency(until(0), LIMITS))

    assert document["boundary_summary"]["feasible_max"] is None
    assert document["boundary_summary"]["infeasible_min"]["value"] == 1
    assert document["best_trials"] is None
    assert document["convergence_reason"] == "monotonic_no_pass_in_range"
