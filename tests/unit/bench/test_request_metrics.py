"""Metrics of one answer, with AIPerf's names and definitions."""

from __future__ import annotations

import pytest

from packager.bench.request_metrics import (
    chunk_latencies,
    has_content,
    is_good,
    is_other_length,
    request_metrics,
)
from packager.core.bench import Limits
from packager.load.values import Chunk
from tests.unit.bench.loads import answer, failure

TOKENS = {"input_tokens": 20, "output_tokens": 4}


def test_times_of_a_streamed_answer() -> None:
    found = request_metrics(answer(sent=2.0, at=(0.5, 0.6, 0.9, 1.25), ended=3.5, **TOKENS))

    assert found == pytest.approx(
        {
            "time_to_first_token": 500.0,
            "time_to_second_token": 100.0,
            "time_to_first_output_token": 500.0,
            "request_latency": 1250.0,  # the last content, not the last byte
            "decode_duration": 750.0,
            "inter_token_latency": 250.0,  # 750 ms for the three after the first
            "output_token_throughput_per_user": 4.0,
            "e2e_output_token_throughput": 3.2,
            "prefill_throughput_per_user": 40.0,
            "input_sequence_length": 20.0,
            "output_sequence_length": 4.0,
            "output_token_count": 4.0,
            "usage_prompt_tokens": 20.0,
            "usage_completion_tokens": 4.0,
            "usage_total_tokens": 24.0,
        }
    )


def test_gaps_are_between_pieces() -> None:
    assert chunk_latencies(answer(sent=1.0, at=(0.1, 0.15, 0.21))) == pytest.approx([50.0, 60.0])


def test_an_answer_that_was_not_streamed_has_no_first_token() -> None:
    one = answer(at=(), ended=2.0, text="x", is_streamed=False, **TOKENS)

    found = request_metrics(one)

    assert found["request_latency"] == 2000.0
    assert found["e2e_output_token_throughput"] == 2.0
    absent = {"time_to_first_token", "inter_token_latency", "decode_duration"}
    assert not absent & found.keys()
    assert chunk_latencies(one) == []


def test_one_token_has_no_inter_token_latency() -> None:
    found = request_metrics(answer(at=(0.5,), output_tokens=1))

    assert found["time_to_first_token"] == 500.0
    assert found["decode_duration"] == 0.0
    assert "inter_token_latency" not in found
    assert "time_to_second_token" not in found


def test_all_tokens_in_one_piece_have_no_inter_token_latency() -> None:
    assert "inter_token_latency" not in request_metrics(answer(at=(0.5,), output_tokens=40))


def test_pieces_of_several_tokens_are_not_counted_as_tokens() -> None:
    # Nine tokens in three pieces, as an engine that speculates sends them.
    found = request_metrics(answer(at=(0.2, 0.6, 1.0), output_tokens=9))

    assert found["inter_token_latency"] == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("told", "expected"),
    [(3, 800 / 6), (None, 100.0), (0, 100.0), (9, 100.0)],
    ids=["told", "not-told", "told-late", "all-at-first"],
)
def test_tokens_of_the_first_piece_are_those_the_server_tells(
    told: int | None, expected: float
) -> None:
    pieces = (Chunk(at_s=0.2, tokens=told), Chunk(at_s=1.0, tokens=9))

    found = request_metrics(answer(at=(0.2, 1.0), chunks=pieces, output_tokens=9))

    assert found["inter_token_latency"] == pytest.approx(expected)


def test_thoughts_count_as_output_and_the_first_answer_comes_after_them() -> None:
    pieces = (Chunk(at_s=0.1, is_reasoning=True), Chunk(at_s=0.4))

    found = request_metrics(
        answer(at=(0.1, 0.4), chunks=pieces, output_tokens=10, reasoning_tokens=7)
    )

    assert found["time_to_first_token"] == pytest.approx(100.0)
    assert found["time_to_first_output_token"] == pytest.approx(400.0)
    assert found["output_sequence_length"] == 10.0
    assert found["reasoning_token_count"] == 7.0
    assert found["output_token_count"] == 3.0


def test_thoughts_alone_have_no_first_answer() -> None:
    pieces = (Chunk(at_s=0.1, is_reasoning=True),)

    found = request_metrics(answer(at=(0.1,), chunks=pieces, output_tokens=7, reasoning_tokens=7))

    assert "time_to_first_output_token" not in found
    assert "output_token_count" not in found


def test_the_clients_count_stands_in_for_the_servers() -> None:
    found = request_metrics(answer(at=(0.5, 1.0), own_input_tokens=8, own_output_tokens=3))

    assert found["input_sequence_length"] == 8.0
    assert found["inter_token_latency"] == pytest.approx(250.0)
    assert "usage_completion_tokens" not in found


def test_without_a_count_there_are_no_tokens() -> None:
    found = request_metrics(answer(at=(0.5, 1.0)))

    assert set(found) == {
        "time_to_first_token",
        "time_to_second_token",
        "time_to_first_output_token",
        "request_latency",
        "decode_duration",
    }


def test_the_servers_counts_win_and_are_compared_in_percent_of_the_clients() -> None:
    found = request_metrics(
        answer(
            at=(0.5,),
            input_tokens=110,
            own_input_tokens=100,
            output_tokens=45,
            own_output_tokens=50,
        )
    )

    assert (found["input_sequence_length"], found["output_sequence_length"]) == (110.0, 45.0)
    assert found["usage_prompt_tokens_diff_pct"] == pytest.approx(10.0)
    assert found["usage_completion_tokens_diff_pct"] == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("asked", "tokens", "expected"),
    [(100, 95, False), (100, 94, True), (100, 106, True), (2000, 1950, False), (2000, 1949, True)],
)
def test_answers_of_another_length_than_asked_for(asked: int, tokens: int, expected: bool) -> None:
    one = answer(at=(0.5,), asked_tokens=asked, output_tokens=tokens)

    assert is_other_length(one) is expected
    assert request_metrics(one)["osl_mismatch_diff_pct"] == pytest.approx(
        100 * (tokens - asked) / asked
    )


def test_an_answer_without_an_asked_length_has_no_other_one() -> None:
    assert not is_other_length(answer(at=(0.5,), output_tokens=3))


def test_a_request_is_good_at_the_limit_itself() -> None:
    metrics = {"time_to_first_token": 500.0, "inter_token_latency": 50.0, "request_latency": 900.0}

    assert is_good(metrics, Limits(ttft_ms=500, tpot_ms=50, latency_ms=900))
    assert not is_good(metrics, Limits(ttft_ms=499.9))
    assert not is_good(metrics, Limits(tpot_ms=49.9))
    assert not is_good(metrics, Limits(latency_ms=899))


def test_a_request_without_the_metric_kept_no_limit_of_it() -> None:
    assert not is_good({"request_latency": 1.0}, Limits(tpot_ms=50))
    assert is_good({"request_latency": 1.0}, Limits(latency_ms=50))


def test_only_whole_answers_with_content_count() -> None:
    assert has_content(answer(at=(0.5,)))
    assert not has_content(answer(at=()))
    assert not has_content(failure())
    assert not has_content(answer(at=(0.5,), failure="cut"))
    assert has_content(answer(at=(), text="x", is_streamed=False))
    assert not has_content(answer(at=(), text="", is_streamed=False))
