"""From a server that answers as it is told to the figures of its load.

Times are those that the server itself recorded: it may be late on a busy machine, and the
client may see a chunk later than it was sent, never earlier.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from packager.addons.bench.load.run import run_load
from packager.addons.bench.load.values import Level, LoadPlan, LoadRequest, LoadRun
from packager.addons.bench.metrics import load_figures
from packager.core.bench import BenchLoad
from tests.support.llm_double import Behaviour, LlmDouble, Record

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
    sent: Sequence[LoadRequest], behaviour: Behaviour, concurrency: int
) -> tuple[BenchLoad, LoadRun, list[Record]]:
    level = Level(concurrency=concurrency)
    plan = LoadPlan(level=level, requests=len(sent), request_timeout_s=PATIENT)
    with LlmDouble(behaviour) as double:
        run = run_load(double.url, "double", sent, plan)
        records = double.records()
    return load_figures([run]), run, records


def test_whole_answers_are_timed_no_earlier_than_they_were_sent() -> None:
    figures, run, records = loaded(requests(12), Behaviour(ttft_s=0.02, itl_s=0.005), 4)

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


def test_chunks_with_several_tokens_are_no_single_tokens() -> None:
    behaviour = Behaviour(ttft_s=0.01, itl_s=0.01, tokens_per_chunk=4)

    figures, run, _ = loaded(requests(4, max_tokens=13), behaviour, 1)

    metrics = figures.metrics
    assert {len(one.chunks) for one in run.results} == {4}  # one token, then three times four
    assert metrics["output_sequence_length"].avg == 13
    assert metrics["inter_token_latency"].avg == pytest.approx(metrics["decode_duration"].avg / 12)
    assert metrics["inter_chunk_latency"].avg == pytest.approx(metrics["decode_duration"].avg / 3)
    assert figures.acceptance is not None
    assert figures.acceptance.source == "vllm"
    assert metrics["total_spec_decode_steps"].avg == figures.acceptance.drafts == 12
    assert metrics["spec_decode_token_weighted_acceptance_length"].avg == figures.acceptance.length
