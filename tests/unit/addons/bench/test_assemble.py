"""The report of a benchmark: prices, predictions and failures beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from packager.addons.bench.assemble import Circumstances, HourPrice, make_report, total_use
from packager.addons.bench.load.values import Level
from packager.addons.bench.search import SearchPoint, find_knee
from packager.addons.bench.session import OneLoad, Results
from packager.addons.bench.targets import BenchTarget
from packager.cli.serving.opening import MeasuredServer
from packager.core.bench import BenchLoad, BenchWorkload, ContainerUse, Limits, Predicted
from packager.core.errors import SmokeFailed
from tests.support.cases import cases
from tests.unit.addons.bench.test_session import answer, run_of

FOUR = Level(concurrency=4)
FORETOLD = Predicted(tpot_ms=12.0, ttft_ms=90.0, output_token_throughput=40.0, band=0.2)


def target(name: str) -> BenchTarget:
    return BenchTarget(name=name, server=MeasuredServer(name=name, env={}))


def one(name: str, number: int, use: ContainerUse | None = None, level: Level = FOUR) -> OneLoad:
    run = run_of(level, answer(0), answer(1))
    return OneLoad(target=name, level=level, round=number, run=run, use=use)


def about(**changes: Any) -> Circumstances:
    def predict(target: BenchTarget, loads: Sequence[BenchLoad]) -> Mapping[int, Predicted]:
        return {4: FORETOLD} if target.name == "a" else {}

    given: dict[str, Any] = {
        "workload": BenchWorkload(name="chat"),
        "limits": Limits(ttft_ms=150),
        "measured": "2026-11-23T06:00:00Z",
        "machine": "here",
        "command": "packager bench a b",
        "price_of": lambda target: HourPrice(usd=3.6, source="--usd-per-hour"),
        "predict": predict,
    }
    return Circumstances(**(given | changes))


def test_rounds_of_a_load_are_one_load_with_price_prediction_and_use() -> None:
    results = Results(rounds=2, start_s={"a": 12.3456}, models={"a": "tiny"})
    results.loads += [
        one("a", 1, ContainerUse(peak_memory_bytes=70, cpu_seconds=1.5)),
        one("a", 0, ContainerUse(peak_memory_bytes=90, cpu_seconds=2.0)),
    ]

    report = make_report([target("a")], results, about())

    (variant,) = report.variants
    (load,) = variant.loads
    assert (load.concurrency, load.requests, load.good, len(load.rounds)) == (4, 4, 1.0, 2)
    assert load.use == ContainerUse(peak_memory_bytes=90, cpu_seconds=3.5)
    assert load.predicted == FORETOLD
    assert load.prices is not None
    assert (load.prices.usd_hour, load.prices.source) == (3.6, "--usd-per-hour")
    # 44 tokens in two rounds of 0.2 s are 110 tokens/s; $3.6 an hour are $0.001 a second.
    assert load.prices.output == pytest.approx(0.001 / 110 * 1e6)
    assert (variant.start_s, variant.failure, report.incomplete) == (12.346, "", "")
    assert variant.setup.model == "tiny"


def test_a_discount_is_in_the_prices() -> None:
    load = only_load(discount=0.25)

    assert load.prices is not None
    assert (load.prices.usd_hour, load.prices.discount) == (3.6, 0.25)
    assert load.prices.output == pytest.approx(0.75 * 0.001 / 110 * 1e6)


def test_without_a_price_nothing_is_priced() -> None:
    assert only_load(price_of=lambda target: None).prices is None


def test_loads_at_a_rate_are_not_predicted() -> None:
    assert only_load(Level(rate=2.0, concurrency=4)).predicted is None


def only_load(level: Level = FOUR, **changes: Any) -> BenchLoad:
    results = Results(loads=[one("a", 0, level=level)])
    (load,) = make_report([target("a")], results, about(**changes)).variants[0].loads
    return load


def test_a_server_that_failed_is_in_the_report_with_its_reason() -> None:
    results = Results(loads=[one("a", 0)], failures={"b": SmokeFailed("it ended")})

    report = make_report([target("a"), target("b")], results, about())

    assert [(one.name, len(one.loads), one.failure) for one in report.variants] == [
        ("a", 1, ""),
        ("b", 0, "it ended"),
    ]


def test_an_interrupted_benchmark_says_so() -> None:
    results = Results(loads=[one("a", 0)], is_interrupted=True)

    assert make_report([target("a")], results, about()).incomplete == "interrupted"


def test_variants_are_compared_and_the_best_points_marked() -> None:
    results = Results(loads=[one("a", 0), one("b", 0)])

    report = make_report([target("a"), target("b")], results, about())

    assert {found.variant for found in report.compared} == {"b"}
    assert report.pareto == (("a", 4), ("b", 4))


def test_of_searches_nobody_knows_what_is_noise() -> None:
    results = Results(loads=[one(name, number) for name in "ab" for number in range(3)])
    known = make_report([target("a"), target("b")], results, about()).compared

    results.searches["a"] = find_knee(
        lambda n: SearchPoint(concurrency=n, output_token_throughput=1.0)
    )
    unknown = make_report([target("a"), target("b")], results, about()).compared

    assert {found.is_noise for found in known} == {True}
    assert {found.is_noise for found in unknown} == {None}


def test_a_report_notes_from_where_on_a_dearer_machine_pays() -> None:
    def price_of(target: BenchTarget) -> HourPrice:
        return HourPrice(usd={"a": 1.0, "b": 1.5}[target.name], source="")

    results = Results(loads=[one("a", 0), one("b", 0)])
    quick = run_of(FOUR, *(answer(number) for number in range(8)))
    results.loads[1] = replace(results.loads[1], run=quick)

    (note,) = make_report([target("a"), target("b")], results, about(price_of=price_of)).notes
    assert note.startswith("above ")
    assert note.endswith(
        "1 machine of 'b' ($1.50 an hour each) costs less than 2 machines of 'a' ($1.00)"
    )


@cases("uses")
def test_use_of_rounds_is_the_highest_memory_and_all_the_time(
    uses: tuple[dict[str, Any], ...], total: dict[str, Any] | None
) -> None:
    found = total_use([ContainerUse(**use) if use else None for use in uses])

    assert found == (ContainerUse(**total) if total else None)
