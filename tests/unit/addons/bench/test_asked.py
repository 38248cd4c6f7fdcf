"""Loads that are asked for: defaults, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest

from packager.addons.bench.load.values import Level
from packager.addons.bench.options import BenchOptions, check_asked
from packager.core.errors import UsageError
from tests.support.cases import as_type, cases, read_tables

TABLES = read_tables(__file__)


def test_loads_rise_and_stand_once() -> None:
    assert BenchOptions(concurrency=(8, 1, 8, 4)).levels == as_type(
        TABLES["levels"], tuple[Level, ...]
    )


def test_without_a_word_loads_double_up_to_64() -> None:
    asked = BenchOptions()

    assert [level.concurrency for level in asked.levels] == [1, 2, 4, 8, 16, 32, 64]
    assert asked.is_ramp


def test_a_rate_is_limited_by_the_concurrency_beside_it() -> None:
    asked = BenchOptions(rate=(4.0, 0.5), concurrency=(16,), arrivals="constant", duration_s=30)

    assert asked.levels == as_type(TABLES["rates"], tuple[Level, ...])
    assert not asked.is_ramp


@cases("requests")
def test_a_load_has_enough_requests_for_its_percentiles(
    given: dict[str, Any], concurrency: int, requests: int | None
) -> None:
    plan = BenchOptions(**given).plan(Level(concurrency=concurrency), seed=3)

    assert (plan.requests, plan.warm_up, plan.seed) == (requests, 2, 3)


def test_servers_are_compared_in_three_rounds_unless_said_otherwise() -> None:
    assert BenchOptions().rounds_of(1) == 1
    assert BenchOptions().rounds_of(2) == 3
    assert BenchOptions(rounds=5).rounds_of(2) == 5


@cases("contradictions")
def test_options_that_contradict_each_other_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_asked(BenchOptions(**given))

    assert told in refused.value.message
    assert refused.value.hint


@cases("taken")
def test_options_that_belong_together_are_taken(given: dict[str, Any]) -> None:
    check_asked(BenchOptions(**given))
