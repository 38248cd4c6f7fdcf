"""Comparisons in words."""

from __future__ import annotations

from packager.addons.bench.verdict import describe, describe_one
from packager.core.bench import Compared
from tests.support.cases import cases

OUTPUT, PRICE = "output_token_throughput", "cost_per_million_output_tokens"


def one(metric: str, ratio: float, is_noise: bool | None = False) -> Compared:
    return Compared(variant="awq", concurrency=8, metric=metric, ratio=ratio, is_noise=is_noise)


@cases("differences")
def test_a_difference_is_said_as_people_say_it(metric: str, ratio: float, words: str) -> None:
    assert describe_one(one(metric, ratio)) == words


@cases("noise")
def test_noise_has_no_number(metric: str, words: str) -> None:
    assert describe_one(one(metric, 2.5, is_noise=True)) == words


@cases("lines")
def test_a_whole_load_is_one_line(
    found: tuple[tuple[str, float, bool], ...], has_rounds: bool, line: str
) -> None:
    compared = [one(tag, ratio, is_noise if has_rounds else None) for tag, ratio, is_noise in found]

    assert describe(compared) == line


def test_where_all_is_noise_nothing_differs() -> None:
    noise = [one(OUTPUT, 1.12, True), one("request_latency", 1.1, True)]

    assert describe(noise) == "no measurable difference"
    assert describe([]) == ""
