"""Prices of tokens against published figures.

Figures of Qwen3-32B: AWS, "Amazon SageMaker AI introduces EAGLE based adaptive
speculative decoding".  Those of Llama-3-70B on ml.p5.48xlarge: AWS, the
announcement of the inference optimization toolkit.
"""

from __future__ import annotations

import pytest

from packager.estimate.performance.pricing import (
    blended_price,
    make_prices,
    mixed_price,
    price_per_million,
    price_per_month,
    tokens_s_by_gap,
    tokens_s_by_latency,
)
from tests.support.cases import cases_of, read_tables

cases = cases_of(__file__)

P5_2024, P5_2026 = 113.068, 63.296  # ml.p5.48xlarge by the hour, before and after the cut

# configuration, p50 gap between chunks (ms), time per output token (ms), measured tokens/s
QWEN3_32B_AT_8 = read_tables(__file__)["qwen3_32b_at_8"]


def test_counting_chunks_hides_what_a_draft_gains() -> None:
    by_chunk = [round(tokens_s_by_gap(8, chunk / 1e3)) for _, chunk, _, _ in QWEN3_32B_AT_8]
    measured = [round(rate) for *_, rate in QWEN3_32B_AT_8]

    assert by_chunk == [157, 160, 155]
    assert measured == [156, 382, 412]


@pytest.mark.parametrize("case", QWEN3_32B_AT_8, ids=lambda case: case[0])
def test_counting_time_per_token_agrees_with_the_measurement(
    case: tuple[str, float, float, float],
) -> None:
    _, _, per_token_ms, measured = case

    assert tokens_s_by_gap(8, per_token_ms / 1e3) == pytest.approx(measured, rel=0.02)


def test_latency_of_a_request_gives_its_share_of_the_throughput() -> None:
    # 2,000 tokens of 51.02 ms after 219.53 ms
    assert tokens_s_by_latency(8, 2000, 0.21953 + 1999 * 0.05102) == pytest.approx(156.5, abs=0.1)


@cases("twice_the_tokens_halve_the_blended_price")
def test_twice_the_tokens_halve_the_blended_price(
    usd_hour: float, discount: float, before: float, after: float
) -> None:
    assert round(blended_price(usd_hour, 1200, discount=discount), 2) == before
    assert round(blended_price(usd_hour, 2400, discount=discount), 2) == after


def test_input_and_output_each_carry_the_whole_instance() -> None:
    prices = make_prices(36.0, formula="F3", output_tokens_s=1000, input_per_output=2.5)

    assert (prices.output, prices.input) == (10.0, 4.0)
    assert prices.input_tokens_s == 2500
    assert prices.blended == 2.5


def test_the_total_price_is_that_of_the_measured_mix() -> None:
    prices = make_prices(36.0, formula="F3", output_tokens_s=1000, input_per_output=622 / 250)

    assert prices.total == pytest.approx(price_per_million(36.0, 1000 + 2488))
    assert prices.total == mixed_price(36.0, 1000, 622 / 250)


def test_without_prompts_only_the_output_has_a_price() -> None:
    prices = make_prices(36.0, formula="F2", output_tokens_s=1000)

    assert (prices.input, prices.output, prices.total) == (0.0, 10.0, 10.0)


def test_a_month_has_730_hours() -> None:
    assert price_per_month(7.09, discount=0.26) == pytest.approx(3830.018)
