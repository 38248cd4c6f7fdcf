"""Figures of a load: what was sent, what came back, how fast."""

from __future__ import annotations

import pytest

from packager.addons.bench.load.values import Level
from packager.addons.bench.metrics import load_figures
from packager.core.bench import BenchError, Limits
from tests.support.cases import Case, cases, read_tables
from tests.unit.addons.bench.loads import answer, failure, load, load_of

FAST = answer(0, sent=0.0, at=(0.1, 0.2, 0.3), input_tokens=10, output_tokens=3)
SLOW = answer(1, sent=1.0, at=(0.4, 0.6, 0.8), input_tokens=30, output_tokens=3)


@cases("figures")
def test_figures_of_a_load(case: Case) -> None:
    level = Level(**case.get("level", {"concurrency": 4}))
    limits = Limits(**case.get("limits", {}))

    found = load_figures([load_of(level=level, **one) for one in case["rounds"]], limits)

    metrics, figures = case["metrics"], case.get("figures", {})
    assert {tag: found.metrics[tag].avg for tag in metrics} == pytest.approx(metrics)
    assert "only" not in case or set(found.metrics) == set(metrics)
    assert not [tag for tag in found.metrics if "lacks" in case and case["lacks"] in tag]
    assert {name: getattr(found, name) for name in figures} == figures
    if "errors" in case:
        assert found.errors == tuple(BenchError(**one) for one in case["errors"])
    assert (found.good is None) is ("limits" not in case)
    assert (found.rate is None) is ("level" not in case)
    accepted = found.acceptance and {
        "source": found.acceptance.source,
        "by_position": [*found.acceptance.by_position],
    }
    assert accepted == case.get("acceptance")


def test_percentiles_are_of_all_requests() -> None:
    metrics = load_figures([load(FAST, SLOW)]).metrics

    first = metrics["time_to_first_token"].model_dump()
    assert first.pop("unit") == "ms"
    assert first == pytest.approx(read_tables(__file__)["percentiles"])
    assert metrics["inter_chunk_latency"].count == 4  # all gaps of all requests
    assert metrics["inter_chunk_latency"].avg == pytest.approx(150)
    assert metrics["output_token_throughput"].unit == "tokens/sec"
    assert metrics["request_throughput"].unit == "requests/sec"


def test_a_round_without_an_answer_has_no_throughput() -> None:
    (found,) = load_figures([load(failure(0, "connection", reason="refused"))]).rounds

    assert (found.output_token_throughput, found.failed) == (None, 1)


def test_a_load_without_a_round_is_refused() -> None:
    with pytest.raises(ValueError, match="without a round"):
        load_figures([])


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


def test_many_reasons_are_put_together_by_kind() -> None:
    failures = [failure(n, "server", reason=f"request {n:03} failed") for n in range(30)]

    errors = load_figures([load(*failures)]).errors

    assert len(errors) == 21
    assert errors[-1] == BenchError(kind="server", reason="other reasons", count=10)
    assert sum(error.count for error in errors) == 30
