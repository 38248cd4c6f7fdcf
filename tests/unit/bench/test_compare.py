"""Ratios against the first variant, and what of them is noise."""

from __future__ import annotations

import random

import pytest

from packager.bench.compare import Ratio, chance_findings, compare, paired_ratio
from packager.core.bench import Compared
from tests.unit.bench.variants import load, variant


def by_metric(found: tuple[Compared, ...]) -> dict[str, Compared]:
    return {one.metric: one for one in found}


def test_the_interval_is_that_of_paired_logarithms() -> None:
    # numpy and scipy: d = log([200, 190, 210] / [100, 100, 102]); exp(mean(d)), and
    # exp(scipy.stats.t.interval(0.95, 2, mean(d), scipy.stats.sem(d)))
    found = paired_ratio([100.0, 100.0, 102.0], [200.0, 190.0, 210.0])

    assert found.ratio == pytest.approx(1.98518, abs=1e-5)
    assert (found.low, found.high) == pytest.approx((1.79449, 2.19614), abs=1e-5)
    assert found.is_noise is False


def test_what_the_machine_did_to_both_of_a_round_does_not_count() -> None:
    found = paired_ratio([100.0, 50.0, 10.0], [120.0, 60.0, 12.0])

    assert found == Ratio(ratio=pytest.approx(1.2), low=pytest.approx(1.2), high=pytest.approx(1.2))


def test_a_difference_within_the_spread_of_rounds_is_noise() -> None:
    found = paired_ratio([100.0, 100.0, 100.0], [95.0, 110.0, 101.0])

    assert found.is_noise is True
    assert found.ratio == pytest.approx(1.01815, abs=1e-5)


def test_equal_servers_without_any_spread_do_not_differ() -> None:
    found = paired_ratio([0.1 + 0.2, 0.3, 0.3], [0.3, 0.3, 0.1 + 0.2])

    assert (found.ratio, found.low, found.high, found.is_noise) == (1.0, 1.0, 1.0, True)


@pytest.mark.parametrize("rounds", [1, 2])
def test_with_fewer_than_three_rounds_nobody_knows_what_is_noise(rounds: int) -> None:
    found = paired_ratio([100.0] * rounds, [150.0] * rounds)

    assert (found.ratio, found.low, found.high, found.is_noise) == (
        pytest.approx(1.5),
        None,
        None,
        None,
    )


def test_the_other_way_round_the_ratio_is_the_inverse() -> None:
    there = paired_ratio([100.0, 104.0, 99.0], [130.0, 120.0, 128.0])
    back = paired_ratio([130.0, 120.0, 128.0], [100.0, 104.0, 99.0])

    assert back.ratio == pytest.approx(1 / there.ratio)
    assert (back.low, back.high) == (pytest.approx(1 / there.high), pytest.approx(1 / there.low))


def test_every_variant_is_compared_with_the_first_under_the_same_load() -> None:
    found = compare(
        [
            variant("plain", load([100] * 3), load([10] * 3, concurrency=1)),
            variant("awq", load([180] * 3), load([1] * 3, concurrency=64)),
            variant("fp8", load([150] * 3), load([12] * 3, concurrency=1)),
            variant("by rate", load([150] * 3, rate=8.0)),
        ]
    )

    throughputs = [one for one in found if one.metric == "output_token_throughput"]
    assert [(one.variant, one.concurrency, round(one.ratio, 6)) for one in throughputs] == [
        ("awq", 8, 1.8),
        ("fp8", 8, 1.5),
        ("fp8", 1, 1.2),
    ]


def test_the_ratio_of_prices_is_that_of_the_hours_over_that_of_the_tokens() -> None:
    found = by_metric(
        compare(
            [
                variant("plain", load([100, 104, 99], usd_hour=25.0)),
                variant("awq", load([200, 190, 205], usd_hour=10.0)),
            ]
        )
    )

    throughput = found["output_token_throughput"]
    price = found["cost_per_million_output_tokens"]
    assert price.ratio == pytest.approx(0.4 / throughput.ratio)
    assert price.low == pytest.approx(0.4 / throughput.high)
    assert price.high == pytest.approx(0.4 / throughput.low)
    assert price.is_noise is False


def test_discounts_are_in_the_ratio_of_prices() -> None:
    half = load([100] * 3, usd_hour=25.0)
    assert half.prices is not None
    half = half.model_copy(
        update={"prices": half.prices.model_copy(update={"discount": 0.5, "output": 1.0})}
    )
    found = by_metric(
        compare([variant("plain", load([100] * 3, usd_hour=25.0)), variant("half", half)])
    )

    assert found["cost_per_million_output_tokens"].ratio == 0.5


def test_on_one_machine_noise_of_throughput_is_noise_of_price() -> None:
    found = by_metric(
        compare(
            [
                variant("plain", load([100, 110, 90], usd_hour=25.0)),
                variant("awq", load([110, 90, 100], usd_hour=25.0)),
            ]
        )
    )

    assert found["output_token_throughput"].is_noise is True
    assert found["cost_per_million_output_tokens"].is_noise is True


def test_a_round_without_an_answer_leaves_its_pair_out() -> None:
    found = by_metric(
        compare(
            [
                variant("plain", load([100, 100, 100, 100], ttft_ms=[50, 0, 50, 50])),
                variant("awq", load([100, 100, 100, 100], ttft_ms=[25, 90, 25, 25])),
            ]
        )
    )

    assert found["time_to_first_token"].ratio == pytest.approx(0.5)
    assert found["time_to_first_token"].is_noise is False


def test_rounds_that_were_not_interleaved_do_not_tell_what_is_noise() -> None:
    found = compare(
        [variant("plain", load([100, 104, 99])), variant("awq", load([200, 190, 205]))],
        are_interleaved=False,
    )

    assert [(round(one.ratio, 2), one.low, one.high, one.is_noise) for one in found] == [
        (1.96, None, None, None),
        (1.0, None, None, None),
    ]


def test_without_rounds_the_whole_loads_are_compared() -> None:
    plain, awq = load([100]), load([150], latency_ms=500.0)
    found = by_metric(
        compare(
            [
                variant("plain", plain.model_copy(update={"rounds": ()})),
                variant("awq", awq.model_copy(update={"rounds": ()})),
            ]
        )
    )

    assert {tag: (one.ratio, one.is_noise) for tag, one in found.items()} == {
        "output_token_throughput": (1.5, None),
        "request_latency": (0.5, None),
    }


def test_nothing_is_compared_with_a_first_variant_that_failed() -> None:
    assert compare([variant("plain", failure="no start"), variant("awq", load([1] * 3))]) == ()
    assert compare([]) == ()


def test_of_a_hundred_comparisons_of_equal_servers_five_are_called_differences() -> None:
    one = Compared(variant="a", metric="request_latency", ratio=1, low=1, high=1, is_noise=True)
    price = one.model_copy(update={"metric": "cost_per_million_output_tokens"})
    unknown = one.model_copy(update={"is_noise": None})

    assert chance_findings([one] * 100 + [price] * 100 + [unknown]) == pytest.approx(5.0)


def rounds(
    chance: random.Random, count: int, ratio: float, noise: float
) -> tuple[list[float], list[float]]:
    """Make paired rounds: a drift of 10 % that both share, and noise of their own."""
    drift = [chance.lognormvariate(0, 0.1) for _ in range(count)]
    base = [100 * machine * chance.lognormvariate(0, noise) for machine in drift]
    other = [100 * ratio * machine * chance.lognormvariate(0, noise) for machine in drift]
    return base, other


@pytest.mark.parametrize("count", [3, 5, 10])
def test_equal_servers_are_called_different_in_about_5_percent(count: int) -> None:
    chance = random.Random(count)

    alarms = sum(
        paired_ratio(*rounds(chance, count, 1.0, 0.03)).is_noise is False for _ in range(2000)
    )

    assert 70 <= alarms <= 130  # 100 +- 3 standard deviations


@pytest.mark.parametrize(("count", "least"), [(3, 900), (5, 995)])
def test_a_difference_of_20_percent_is_found(count: int, least: int) -> None:
    chance = random.Random(count)

    found = sum(
        paired_ratio(*rounds(chance, count, 1.2, 0.03)).is_noise is False for _ in range(1000)
    )

    assert found >= least


def test_the_interval_holds_the_true_ratio_in_95_percent() -> None:
    chance = random.Random(1)

    held = 0
    for _ in range(2000):
        found = paired_ratio(*rounds(chance, 4, 1.7, 0.05))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.7 <= found.high

    assert 1870 <= held <= 1930
