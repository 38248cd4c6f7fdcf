"""From a server that answers as it is told to the figures of its load.

Times are those that the server itself recorded: it may be late on a busy machine, and the
client may see a chunk later than it was sent, never earlier.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from packager.bench.metrics import load_figures
from packager.core.bench import BenchLoad, Limits
from packager.load.run import run_load
from packager.load.values import Level, LoadPlan, LoadRequest, LoadRun
from tests.support.llm_double import Behaviour, LlmDouble, Mode, Record

PATIENT = 120.0  # seconds; nothing here waits for it
LATE_MS = 0.01  # clocks of both sides are one, rounded


def requests(count: int, **body: object) -> list[LoadRequest]:
    given = {
        "messages": [{"role": "user", "content": "one two three"}],
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        **body,
    }
    return [LoadRequest(endpoint="/v1/chat/completions", body=given) for _ in range(count)]


def loaded(
    sent: Sequence[LoadRequest],
    behaviour: Behaviour | None = None,
    *,
    modes: Sequence[Mode] = (),
    limits: Limits | None = None,
    timeout_s: float = PATIENT,
    concurrency: int = 4,
) -> tuple[BenchLoad, LoadRun, list[Record]]:
    plan = LoadPlan(
        level=Level(concurrency=concurrency), requests=len(sent), request_timeout_s=timeout_s
    )
    with LlmDouble(behaviour, modes=modes) as double:
        run = run_load(double.url, "double", sent, plan)
        records = double.records()
    return load_figures([run], limits), run, records


def test_whole_answers_are_timed_no_earlier_than_they_were_sent() -> None:
    figures, run, records = loaded(requests(12), Behaviour(ttft_s=0.02, itl_s=0.005))

    assert (figures.requests, figures.answered, figures.empty) == (12, 12, 0)
    assert figures.errors == ()
    counts = ("total_isl", "total_osl", "usage_total_tokens", "osl_mismatch_count")
    assert [figures.metrics[tag].avg for tag in counts] == [36, 96, 11, 0]
    assert figures.metrics["inter_chunk_latency"].count == 12 * 7
    # The server waits before its first chunk, and its chunks come one after the other.
    first = figures.metrics["time_to_first_token"]
    assert first.min is not None and first.min >= 20 - LATE_MS
    assert figures.metrics["decode_duration"].avg > 0
    # Sent and seen by one clock: the load cannot have taken less than the server took.
    took = max(record.sent_s[-1] for record in records) - min(one.came_s for one in records)
    assert figures.metrics["benchmark_duration"].avg >= took - LATE_MS / 1e3
    assert figures.metrics["benchmark_duration"].avg <= run.seconds
    assert figures.metrics["output_token_throughput"].avg <= 96 / took * 1.001
    assert figures.interrupted == ""


def test_every_way_of_failing_is_counted_as_what_it_is() -> None:
    modes: list[Mode] = [
        "ok",
        "empty",
        "status",
        "cut",
        "ends",
        "not-json",
        "other-form",
        "error",
        "html",
        "ok",
    ]

    figures, run, _ = loaded(requests(20), modes=modes, limits=Limits(latency_ms=PATIENT * 1e3))

    assert (figures.requests, figures.answered, figures.empty) == (20, 6, 2)
    kinds: dict[str, int] = {}
    for error in figures.errors:
        kinds[error.kind] = kinds.get(error.kind, 0) + error.count
    assert kinds == {"status": 2, "cut": 4, "invalid": 6, "server": 2}
    assert {error.status for error in figures.errors if error.kind == "status"} == {500}
    counts = ("request_count", "error_request_count", "request_error_rate", "good_request_count")
    assert [figures.metrics[tag].avg for tag in counts] == [4, 16, 80, 4]
    assert figures.good == 0.2
    assert figures.metrics["request_latency"].count == 4
    assert figures.metrics["total_osl"].avg == 32
    assert figures.rounds[0].failed == 14
    assert len(run.results) == 20


def test_slow_first_bytes_are_time_to_the_first_token() -> None:
    figures, _, _ = loaded(requests(2), Behaviour(slow_s=0.25), modes=["slow-first"], concurrency=1)

    first = figures.metrics["time_to_first_token"]
    assert figures.answered == 2
    assert first.min is not None and first.min >= 250 - LATE_MS


def test_one_byte_at_a_time_ends_at_the_deadline() -> None:
    figures, _, _ = loaded(
        requests(2), Behaviour(drip_s=0.2), modes=["drip"], timeout_s=1.0, concurrency=2
    )

    assert [(error.kind, error.count) for error in figures.errors] == [("deadline", 2)]
    assert "request_latency" not in figures.metrics


def test_chunks_with_several_tokens_are_no_single_tokens() -> None:
    behaviour = Behaviour(ttft_s=0.01, itl_s=0.01, tokens_per_chunk=4)

    figures, run, _ = loaded(requests(4, max_tokens=13), behaviour, concurrency=1)

    metrics = figures.metrics
    assert {len(one.chunks) for one in run.results} == {4}  # one token, then three times four
    assert metrics["output_sequence_length"].avg == 13
    assert metrics["inter_token_latency"].avg == pytest.approx(metrics["decode_duration"].avg / 12)
    assert metrics["inter_chunk_latency"].avg == pytest.approx(metrics["decode_duration"].avg / 3)
    assert figures.acceptance is not None
    assert figures.acceptance.source == "vllm"
    assert metrics["total_spec_decode_steps"].avg == figures.acceptance.drafts == 12
    assert metrics["spec_decode_token_weighted_acceptance_length"].avg == figures.acceptance.length


def test_answers_that_are_not_streamed_have_no_first_token() -> None:
    sent = requests(3, stream=False, stream_options=None)

    figures, _, _ = loaded(sent)

    assert (figures.answered, figures.empty) == (3, 0)
    assert figures.metrics["request_latency"].count == 3
    assert figures.metrics["total_osl"].avg == 24
    assert "time_to_first_token" not in figures.metrics


def test_a_server_that_counts_other_tokens_is_noted() -> None:
    sent = [
        LoadRequest(endpoint=one.endpoint, body=one.body, input_tokens=2) for one in requests(2)
    ]

    figures, _, _ = loaded(sent)

    assert figures.metrics["usage_prompt_tokens_diff_pct"].avg == 50
    assert figures.notes[0].startswith("the server counts 6 input tokens, the tokenizer 4: ")


def test_answers_shorter_than_asked_for_are_noted() -> None:
    figures, _, _ = loaded(requests(2, max_tokens=100), Behaviour(tokens=8))

    assert figures.metrics["osl_mismatch_count"].avg == 2
    assert (
        "2 of 2 answers are longer or shorter than was asked for: compare only with answers of "
        "the same lengths"
    ) in figures.notes
