"""Prices of measured loads against published figures.

Figures of Qwen3-32B: AWS, "Amazon SageMaker AI introduces EAGLE based adaptive speculative
decoding".  Those of Llama-3-70B on ml.p5.48xlarge: AWS, the announcement of the inference
optimization toolkit.
"""

from __future__ import annotations

import pytest

from packager.bench.prices import BreakEven, Capacity, break_even, capacity_of, prices_of
from packager.core.bench import BenchError, BenchLoad, Metric, Prices

P5_2024, P5_2026 = 113.068, 63.296  # ml.p5.48xlarge by the hour, before and after the cut


def load(
    *,
    concurrency: int | None = 8,
    rate: float | None = None,
    throughput: float | None = 1000.0,
    input_throughput: float | None = None,
    requests_s: float | None = None,
    tpot_ms: float | None = None,
    chunk_gap_ms: float | None = None,
    latency_ms: float | None = None,
    tokens: float | None = None,
    failed: int = 0,
    prices: Prices | None = None,
) -> BenchLoad:
    found = {
        "output_token_throughput": throughput,
        "input_token_throughput": input_throughput,
        "request_throughput": requests_s,
        "inter_token_latency": tpot_ms,
        "inter_chunk_latency": chunk_gap_ms,
        "request_latency": latency_ms,
        "output_sequence_length": tokens,
    }
    return BenchLoad(
        concurrency=concurrency,
        rate=rate,
        requests=100,
        answered=100 - failed,
        seconds=60,
        metrics={
            tag: Metric(unit="", avg=value, p50=value)
            for tag, value in found.items()
            if value is not None
        },
        errors=(BenchError(kind="cut", reason="", count=failed),) if failed else (),
        prices=prices,
    )


# throughput, time per output token, gap between chunks -> F3 and F1 at 36 dollars an hour
QWEN3_32B_AT_8 = (
    ("no EAGLE", 156.46, 51.02, 51.01, 63.91, 63.78),
    ("base EAGLE", 381.86, 20.58, 50.15, 26.19, 25.73),
    ("trained EAGLE", 412.25, 19.15, 51.5, 24.26, 23.94),
)


@pytest.mark.parametrize("case", QWEN3_32B_AT_8, ids=lambda case: case[0])
def test_f1_agrees_with_f3_with_a_draft_as_well(
    case: tuple[str, float, float, float, float, float],
) -> None:
    _, throughput, tpot_ms, chunk_gap_ms, f3, f1 = case

    prices = prices_of(
        load(throughput=throughput, tpot_ms=tpot_ms, chunk_gap_ms=chunk_gap_ms), 36.0
    )

    assert prices is not None
    assert prices.output == pytest.approx(f3, abs=0.006)
    assert prices.f1 == pytest.approx(f1, abs=0.006)


@pytest.mark.parametrize(
    ("usd_hour", "discount", "before", "after"),
    [(P5_2024, 0.0, 6.54, 3.27), (P5_2026, 0.0, 3.66, 1.83), (P5_2026, 0.26, 2.71, 1.36)],
    ids=["2024 list", "2026 list", "2026 with 26 % off"],
)
def test_twice_the_tokens_halve_the_blended_price(
    usd_hour: float, discount: float, before: float, after: float
) -> None:
    slow = prices_of(load(throughput=1200), usd_hour, discount=discount)
    fast = prices_of(load(throughput=2400), usd_hour, discount=discount)

    assert slow is not None
    assert fast is not None
    assert (round(slow.blended or 0, 2), round(fast.blended or 0, 2)) == (before, after)


def test_every_price_of_one_load() -> None:
    # 622 prompt tokens to 250 of the answer
    prices = prices_of(
        load(
            concurrency=4,
            throughput=1000,
            input_throughput=2488,
            tpot_ms=4.0,
            tokens=250,
            latency_ms=1250,
        ),
        36.0,
        source="on demand, us-east-1, 2026-07-20",
    )

    assert prices is not None
    assert prices.source == "on demand, us-east-1, 2026-07-20"
    assert (prices.output, prices.f1, prices.f2, prices.blended) == (10.0, 10.0, 12.5, 2.5)
    assert prices.input == pytest.approx(4.0193, abs=1e-4)
    assert prices.total == pytest.approx(2.8670, abs=1e-4)


def test_a_discount_is_of_every_price() -> None:
    made = load(throughput=1000, input_throughput=2000, tpot_ms=4.0, tokens=250, latency_ms=1250)
    whole, half = prices_of(made, 36.0), prices_of(made, 36.0, discount=0.5)

    assert whole is not None
    assert half is not None
    for name in ("output", "input", "total", "f1", "f2", "blended"):
        assert getattr(half, name) == pytest.approx(getattr(whole, name) / 2)


def test_a_load_by_rate_has_no_price_by_formulas_of_concurrency() -> None:
    prices = prices_of(
        load(rate=2.5, throughput=1000, tpot_ms=4.0, tokens=250, latency_ms=1250), 36.0
    )

    assert prices is not None
    assert (prices.output, prices.f1, prices.f2) == (10.0, None, None)


def test_without_streams_there_is_no_f1() -> None:
    prices = prices_of(load(tokens=250, latency_ms=2000), 36.0)

    assert prices is not None
    assert (prices.f1, prices.f2, prices.input, prices.total) == (None, 10.0, None, None)


@pytest.mark.parametrize("throughput", [None, 0.0])
def test_without_tokens_there_is_no_price(throughput: float | None) -> None:
    assert prices_of(load(throughput=throughput), 36.0) is None


SMALL = Capacity(name="ml.g5.12xlarge", requests_hour=1000, usd_hour=7.09)
LARGE = Capacity(name="ml.p4d.24xlarge", requests_hour=6000, usd_hour=25.251)


def test_a_larger_machine_is_cheaper_once_it_replaces_enough_smaller_ones() -> None:
    # three cost 21.27 dollars, four 28.36
    assert break_even(LARGE, SMALL) == BreakEven(
        requests_hour=3000,
        smaller="ml.g5.12xlarge",
        larger="ml.p4d.24xlarge",
        smaller_machines=4,
        larger_machines=1,
    )


def test_a_larger_machine_that_answers_too_little_is_never_cheaper() -> None:
    weak = Capacity(name="weak", requests_hour=3000, usd_hour=25.251)

    assert break_even(SMALL, weak) is None


def test_of_two_machines_of_one_price_the_faster_one_wins_beyond_the_slower_one() -> None:
    fast = Capacity(name="fast", requests_hour=2000, usd_hour=7.09)

    found = break_even(fast, SMALL)

    assert found is not None
    assert (found.requests_hour, found.larger) == (1000, "fast")


def test_bills_are_of_whole_machines() -> None:
    assert [SMALL.machines(requests) for requests in (0, 1, 1000, 1001, 3000)] == [1, 1, 1, 2, 3]
    assert SMALL.bill(1001) == pytest.approx(14.18)


def test_a_load_beyond_the_limits_is_no_capacity() -> None:
    paid = Prices(usd_hour=10.0, output=1.0)
    late = load(requests_s=9.0, prices=paid).model_copy(update={"good": 0.94})
    kept = load(requests_s=2.0, prices=paid).model_copy(update={"good": 0.95})

    assert capacity_of("one", [late, kept]) == Capacity(
        name="one", requests_hour=7200.0, usd_hour=10.0
    )


def test_capacity_is_the_best_throughput_without_many_errors() -> None:
    paid = Prices(usd_hour=10.0, discount=0.2, output=1.0)
    loads = [
        load(concurrency=1, requests_s=1.0, prices=paid),
        load(concurrency=8, requests_s=2.5, failed=1, prices=paid),
        load(concurrency=64, requests_s=4.0, failed=2, prices=paid),
        load(concurrency=128, requests_s=9.0),
    ]

    assert capacity_of("one", loads) == Capacity(name="one", requests_hour=9000.0, usd_hour=8.0)
    assert capacity_of("one", loads[3:]) is None
