"""Comparisons in words."""

from __future__ import annotations

from packager.bench.verdict import describe, describe_one
from packager.core.bench import Compared
from tests.support.cases import cases_of

cases = cases_of(__file__)

OUTPUT, PRICE = "output_token_throughput", "cost_per_million_output_tokens"


def one(metric: str, ratio: float, is_noise: bool | None = False) -> Compared:
    return Compared(variant="awq", concurrency=8, metric=metric, ratio=ratio, is_noise=is_noise)


@cases("differences")
def test_a_difference_is_said_as_people_say_it(metric: str, ratio: float, words: str) -> None:
    assert describe_one(one(metric, ratio)) == words


@cases("noise")
def test_noise_has_no_number(metric: str, words: str) -> None:
    assert describe_one(one(metric, 2.5, is_noise=True)) == words


def test_a_whole_load_is_one_line() -> None:
    line = describe([one(OUTPUT, 1.83), one(PRICE, 0.39), one("time_to_first_token", 1.1, True)])

    assert line == "1.8x as many tokens/s, 61 % cheaper; no measurable change of TTFT"


def test_what_did_not_change_is_named_together() -> None:
    line = describe(
        [
            one(OUTPUT, 1.12),
            one("time_to_first_token", 0.9, True),
            one("inter_token_latency", 1.1, True),
            one("request_latency", 1.1, True),
        ]
    )

    assert line == "12 % more tokens/s; no measurable change of TTFT, TPOT and latency"


def test_where_all_is_noise_nothing_differs() -> None:
    noise = [one(OUTPUT, 1.12, True), one("request_latency", 1.1, True)]

    assert describe(noise) == "no measurable difference"
    assert describe([]) == ""


def test_too_few_rounds_are_said_once() -> None:
    line = describe([one(OUTPUT, 1.83, None), one(PRICE, 0.39, None)])

    assert line == (
        "1.8x as many tokens/s, 61 % cheaper, from fewer than 3 rounds, so it may be noise"
    )
