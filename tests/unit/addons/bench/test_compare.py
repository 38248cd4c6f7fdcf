"""Ratios against the first variant, and what of them is noise."""

from __future__ import annotations

import random
from typing import Any

import pytest

from packager.addons.bench.compare import compare, paired_ratio
from packager.core.bench import BenchVariant, Compared
from tests.support.cases import Case, cases
from tests.unit.addons.bench.loads import bench_load
from tests.unit.addons.bench.variants import load, variant, variants_of


def by_metric(found: tuple[Compared, ...]) -> dict[str, Compared]:
    return {one.metric: one for one in found}


@cases("pairs")
def test_a_ratio_has_an_interval_from_three_rounds_on(case: Case) -> None:
    found = paired_ratio(case["base"], case["other"])

    near = (pytest.approx(case.get(name), abs=1e-5) for name in ("ratio", "low", "high"))
    assert (found.ratio, found.low, found.high) == tuple(near)
    assert found.is_noise is case.get("is_noise")


@cases("variants")
def test_variants_are_compared_with_the_first(
    variants: tuple[dict[str, Any], ...], metric: str, ratios: tuple[dict[str, Any], ...]
) -> None:
    found = [one for one in compare(variants_of(variants)) if one.metric == metric]

    assert len(found) == len(ratios)
    for one, expected in zip(found, ratios, strict=True):
        assert {name: getattr(one, name) for name in expected} == pytest.approx(expected)


def test_the_ratio_of_prices_is_that_of_the_hours_over_that_of_the_tokens() -> None:
    plain, awq = load([100, 104, 99], usd_hour=25.0), load([200, 190, 205], usd_hour=10.0)
    found = by_metric(compare([variant("plain", plain), variant("awq", awq)]))

    throughput = found["output_token_throughput"]
    price = found["cost_per_million_output_tokens"]
    assert price.ratio == pytest.approx(0.4 / throughput.ratio)
    assert price.low == pytest.approx(0.4 / throughput.high)
    assert price.high == pytest.approx(0.4 / throughput.low)
    assert price.is_noise is False


def test_discounts_are_in_the_ratio_of_prices() -> None:
    whole = load([100] * 3, usd_hour=25.0)
    assert whole.prices is not None
    discounted = whole.prices.model_copy(update={"discount": 0.5, "output": 1.0})
    half = whole.model_copy(update={"prices": discounted})
    found = by_metric(compare([variant("plain", whole), variant("half", half)]))

    assert found["cost_per_million_output_tokens"].ratio == 0.5


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
    loads = {"plain": load([100]), "awq": load([150], latency_ms=500.0)}
    found = by_metric(
        compare(
            [variant(name, one.model_copy(update={"rounds": ()})) for name, one in loads.items()]
        )
    )

    assert {tag: (one.ratio, one.is_noise) for tag, one in found.items()} == {
        "output_token_throughput": (1.5, None),
        "request_latency": (0.5, None),
    }


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


@pytest.mark.parametrize(("tag", "compared"), [("text_throughput", 1), ("total_isl", 0)])
def test_requests_a_second_compare_vectors_and_no_answers(tag: str, compared: int) -> None:
    figures = {tag: 9.0, "request_throughput": 9.0}
    sides = [BenchVariant(name=name, loads=(bench_load(figures, concurrency=1),)) for name in "ab"]

    assert [one.metric for one in compare(sides)] == ["request_throughput"] * compared
