"""Figures of a load: what was sent, what came back, how fast."""

from __future__ import annotations

import pytest

from packager.bench.metrics import load_figures
from packager.core.bench import BenchError, BenchLoad, Limits
from packager.load.values import Level
from tests.unit.bench.loads import answer, failure, load

FAST = answer(0, sent=0.0, at=(0.1, 0.2, 0.3), input_tokens=10, output_tokens=3)
SLOW = answer(1, sent=1.0, at=(0.4, 0.6, 0.8), input_tokens=30, output_tokens=3)


def values(figures: BenchLoad, *tags: str) -> list[float]:
    return [figures.metrics[tag].avg for tag in tags]


def test_rates_are_of_the_time_from_the_first_request_to_the_last_content() -> None:
    figures = load_figures([load(FAST, SLOW, seconds=1.8)])

    assert values(
        figures,
        "benchmark_duration",
        "request_throughput",
        "input_token_throughput",
        "output_token_throughput",
        "total_token_throughput",
    ) == pytest.approx([1.8, 2 / 1.8, 40 / 1.8, 6 / 1.8, 46 / 1.8])
    assert figures.metrics["output_token_throughput"].unit == "tokens/sec"
    assert figures.metrics["request_throughput"].unit == "requests/sec"
    assert (figures.concurrency, figures.rate, figures.seconds) == (4, None, 1.8)


def test_percentiles_are_of_all_requests() -> None:
    figures = load_figures([load(FAST, SLOW)])

    metric = figures.metrics["time_to_first_token"].model_dump()
    assert metric.pop("unit") == "ms"
    assert metric == pytest.approx(
        {
            "avg": 250,
            "min": 100,
            "max": 400,
            "std": 150,
            "count": 2,
            "sum": 500,
            "p1": 103,
            "p5": 115,
            "p10": 130,
            "p25": 175,
            "p50": 250,
            "p75": 325,
            "p90": 370,
            "p95": 385,
            "p99": 397,
        }
    )
    assert figures.metrics["inter_chunk_latency"].count == 4  # all gaps of all requests
    assert figures.metrics["inter_chunk_latency"].avg == pytest.approx(150)


def test_what_came_back_is_counted_as_what_it_is() -> None:
    figures = load_figures(
        [
            load(
                FAST,
                answer(1, at=()),
                failure(2, "status", status=500, reason="out of memory"),
                failure(3, "status", status=500, reason="out of memory"),
                failure(4, "cut", status=200, reason="no end"),
                failure(5, "deadline", reason="600 s"),
                failure(6, "cancelled"),
                answer(7, at=(0.1,), tokenizer_failed=True),
                answer(8, at=(0.1,), tokenizer_failed=True, output_tokens=1),
            )
        ]
    )

    assert (figures.requests, figures.answered, figures.cancelled) == (8, 4, 1)
    assert figures.tokenizer_failed == 2
    assert figures.empty == 2  # without content, and one whose tokens nobody could count
    assert values(figures, "request_count", "error_request_count", "completed_request_count") == [
        3,
        5,
        8,
    ]
    assert values(figures, "request_error_rate") == [62.5]
    assert figures.errors == (
        BenchError(kind="status", reason="out of memory", status=500, count=2),
        BenchError(kind="cut", reason="no end", status=200, count=1),
        BenchError(kind="deadline", reason="600 s", count=1),
    )


def test_an_error_is_in_no_time_and_no_token() -> None:
    broken = answer(2, sent=0.0, at=(9.0,), failure="cut", output_tokens=500, input_tokens=500)

    figures = load_figures([load(FAST, broken)])

    assert values(figures, "total_isl", "total_osl", "benchmark_duration") == pytest.approx(
        [10, 3, 0.3]
    )
    assert figures.metrics["request_latency"].count == 1


def test_without_an_answer_there_are_counts_alone() -> None:
    figures = load_figures([load(failure(0, "connection", reason="refused"))], Limits(ttft_ms=1))

    assert set(figures.metrics) == {
        "request_count",
        "error_request_count",
        "completed_request_count",
        "request_error_rate",
        "good_request_count",
        "good_request_fraction",
    }
    assert figures.good == 0.0
    assert figures.rounds[0].output_token_throughput is None
    assert figures.rounds[0].failed == 1


def test_a_load_that_sent_nothing_has_counts_of_zero() -> None:
    figures = load_figures([load(seconds=0.0)], Limits(ttft_ms=1))

    assert (figures.requests, figures.good) == (0, 0.0)
    assert values(figures, "request_count", "error_request_count") == [0, 0]


def test_a_load_without_a_round_is_refused() -> None:
    with pytest.raises(ValueError, match="without a round"):
        load_figures([])


def test_goodput_counts_requests_within_every_limit_and_errors_as_bad() -> None:
    figures = load_figures(
        [load(FAST, SLOW, failure(2), failure(3), seconds=1.8)], Limits(ttft_ms=200, tpot_ms=100)
    )

    assert values(figures, "good_request_count", "good_request_fraction", "goodput") == (
        pytest.approx([1, 0.25, 1 / 1.8])
    )
    assert figures.good == 0.25


def test_without_limits_nothing_is_said_of_good_requests() -> None:
    figures = load_figures([load(FAST)], Limits())

    assert figures.good is None
    assert not [tag for tag in figures.metrics if "good" in tag]


def test_rounds_are_put_together_and_kept_apart() -> None:
    first = load(FAST, seconds=0.4)
    second = load(SLOW, failure(2), seconds=1.6, started="2026-11-23T10:05:00Z")

    figures = load_figures([first, second])

    assert figures.requests == 3
    assert figures.seconds == 2.0
    assert figures.metrics["benchmark_duration"].avg == pytest.approx(0.3 + 0.8)
    assert figures.metrics["output_token_throughput"].avg == pytest.approx(6 / 1.1)
    assert [
        (one.requests, one.failed, one.ttft_p50_ms, one.tpot_p50_ms, one.latency_p50_ms)
        for one in figures.rounds
    ] == [
        (1, 0, pytest.approx(100), pytest.approx(100), pytest.approx(300)),
        (2, 1, pytest.approx(400), pytest.approx(200), pytest.approx(800)),
    ]
    assert figures.rounds[1].output_token_throughput == pytest.approx(3 / 0.8)
    assert figures.rounds[1].request_throughput == pytest.approx(1 / 0.8)
    assert figures.started == "2026-11-23T10:00:00.000000Z"
    assert figures.ended == "2026-11-23T10:05:01.800000Z"


def test_an_open_loop_keeps_its_rate() -> None:
    figures = load_figures([load(FAST, level=Level(rate=2.5, concurrency=64))])

    assert (figures.rate, figures.concurrency) == (2.5, 64)


def test_many_reasons_are_put_together_by_kind() -> None:
    failures = [failure(n, "server", reason=f"request {n:03} failed") for n in range(30)]

    errors = load_figures([load(*failures)]).errors

    assert len(errors) == 21
    assert errors[-1] == BenchError(kind="server", reason="other reasons", count=10)
    assert sum(error.count for error in errors) == 30


def vllm(drafts: int, proposed: int, accepted: int, *positions: int) -> str:
    lines = [
        f"vllm:spec_decode_num_drafts_total {drafts}",
        f"vllm:spec_decode_num_draft_tokens_total {proposed}",
        f"vllm:spec_decode_num_accepted_tokens_total {accepted}",
        *(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{place}"}} {count}'
            for place, count in enumerate(positions)
        ),
    ]
    return "\n".join(lines) + "\n"


def test_acceptance_is_what_the_servers_counters_grew_by_in_all_rounds() -> None:
    first = load(FAST, metrics_before=vllm(5, 20, 5, 5, 0), metrics_after=vllm(15, 60, 25, 13, 12))
    second = load(
        SLOW, metrics_before=vllm(115, 460, 25, 13, 12), metrics_after=vllm(145, 580, 65, 43, 22)
    )

    figures = load_figures([first, second])

    assert values(
        figures,
        "total_spec_decode_steps",
        "total_draft_tokens",
        "total_accepted_draft_tokens",
        "spec_decode_token_weighted_acceptance_length",
        "spec_decode_overall_draft_acceptance_rate",
    ) == [40, 160, 60, 2.5, 37.5]
    assert figures.acceptance is not None
    assert figures.acceptance.by_position == (0.95, 0.55)
    assert figures.acceptance.source == "vllm"


def test_a_server_without_metrics_says_nothing_of_acceptance() -> None:
    figures = load_figures([load(FAST)])

    assert figures.acceptance is None
    assert not [tag for tag in figures.metrics if "spec_decode" in tag]


def test_a_load_that_ended_early_says_why() -> None:
    assert load_figures([load(FAST, lost="connection refused")]).interrupted == (
        "connection refused"
    )
    assert load_figures([load(FAST), load(SLOW, cancelled=True)]).interrupted == (
        "it was interrupted"
    )
    assert load_figures([load(FAST)]).interrupted == ""


def test_tokens_that_differ_by_more_than_ten_percent_are_counted() -> None:
    counts = {"input_tokens": 100, "own_input_tokens": 100}
    figures = load_figures(
        [
            load(
                answer(0, at=(0.1,), output_tokens=100, own_output_tokens=100, **counts),
                answer(1, at=(0.1,), output_tokens=112, own_output_tokens=100, **counts),
                answer(2, at=(0.1,), output_tokens=110, own_output_tokens=100, **counts),
            )
        ]
    )

    assert values(figures, "usage_discrepancy_count") == [1]


def test_answers_of_other_lengths_are_counted() -> None:
    figures = load_figures(
        [
            load(
                answer(0, at=(0.1,), asked_tokens=100, output_tokens=100),
                answer(1, at=(0.1,), asked_tokens=100, output_tokens=12),
            )
        ]
    )

    assert values(figures, "osl_mismatch_count", "osl_mismatch_diff_pct") == [1, -44]
