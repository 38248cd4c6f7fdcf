"""Prices of measured loads against published figures."""

from __future__ import annotations

from typing import Any

import pytest

from packager.addons.bench.prices import BreakEven, Capacity, break_even, capacity_of, prices_of
from packager.core.bench import BenchLoad, Prices
from tests.support.cases import Case, cases
from tests.support.known import known
from tests.unit.addons.bench.loads import bench_load


@cases("prices")
def test_prices_of_a_load(case: Case) -> None:
    made = bench_load(
        case["metrics"], concurrency=case.get("concurrency", 8), rate=case.get("rate")
    )
    usd_hour, discount = case.get("usd_hour", 36.0), case.get("discount", 0.0)

    found = known(prices_of(made, usd_hour, discount=discount, source="on demand"))

    near = pytest.approx(case["prices"], abs=case.get("within", 1e-4))
    assert {name: getattr(found, name) for name in case["prices"]} == near
    assert not any(getattr(found, name) is not None for name in case.get("lacks", ()))
    assert found.source == "on demand"


@pytest.mark.parametrize("metrics", [{}, {"output_token_throughput": 0.0}], ids=str)
def test_without_tokens_there_is_no_price(metrics: dict[str, float]) -> None:
    assert prices_of(bench_load(metrics, concurrency=8), 36.0) is None


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
    found = known(break_even(Capacity(name="fast", requests_hour=2000, usd_hour=7.09), SMALL))

    assert (found.requests_hour, found.larger) == (1000, "fast")


def test_bills_are_of_whole_machines() -> None:
    assert [SMALL.machines(requests) for requests in (0, 1, 1000, 1001, 3000)] == [1, 1, 1, 2, 3]
    assert SMALL.bill(1001) == pytest.approx(14.18)


def answering(requests_s: float, *, paid: Prices | None, **fields: Any) -> BenchLoad:
    return bench_load(
        {"request_throughput": requests_s}, prices=paid, **{"concurrency": 8, **fields}
    )


def test_a_load_beyond_the_limits_is_no_capacity() -> None:
    paid = Prices(usd_hour=10.0, output=1.0)
    loads = [answering(9.0, paid=paid, good=0.94), answering(2.0, paid=paid, good=0.95)]

    assert capacity_of("one", loads) == Capacity(name="one", requests_hour=7200.0, usd_hour=10.0)


def test_capacity_is_the_best_throughput_without_many_errors() -> None:
    paid = Prices(usd_hour=10.0, discount=0.2, output=1.0)
    loads = [
        answering(1.0, paid=paid, concurrency=1),
        answering(2.5, paid=paid, failed=1),
        answering(4.0, paid=paid, failed=2, concurrency=64),
        answering(9.0, paid=None, concurrency=128),
    ]

    assert capacity_of("one", loads) == Capacity(name="one", requests_hour=9000.0, usd_hour=8.0)
    assert capacity_of("one", loads[3:]) is None
