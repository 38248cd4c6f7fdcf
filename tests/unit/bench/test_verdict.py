"""Comparisons in words."""

from __future__ import annotations

import pytest

from packager.bench.compare import compare
from packager.bench.verdict import closing_sentence, describe, describe_one
from packager.core.bench import BenchVariant, Compared
from tests.unit.bench.test_pareto import quality
from tests.unit.bench.variants import load, variant

OUTPUT, PRICE = "output_token_throughput", "cost_per_million_output_tokens"


def one(metric: str, ratio: float, is_noise: bool | None = False) -> Compared:
    return Compared(variant="awq", concurrency=8, metric=metric, ratio=ratio, is_noise=is_noise)


def closing(*variants: BenchVariant) -> str:
    return closing_sentence(variants, compare(variants))


@pytest.mark.parametrize(
    ("metric", "ratio", "words"),
    [
        (OUTPUT, 1.83, "1.8x as many tokens/s"),
        (OUTPUT, 12.4, "12x as many tokens/s"),
        (OUTPUT, 1.12, "12 % more tokens/s"),
        (OUTPUT, 0.4, "60 % fewer tokens/s"),
        (OUTPUT, 1.004, "less than 1 % more tokens/s"),
        (PRICE, 0.39, "61 % cheaper"),
        (PRICE, 1.3, "30 % dearer"),
        (PRICE, 3.1, "3.1x as expensive"),
        ("time_to_first_token", 0.7, "TTFT 30 % shorter"),
        ("inter_token_latency", 1.25, "TPOT 25 % longer"),
        ("request_latency", 2.0, "latency 2.0x as long"),
    ],
)
def test_a_difference_is_said_as_people_say_it(metric: str, ratio: float, words: str) -> None:
    assert describe_one(one(metric, ratio)) == words


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (OUTPUT, "tokens/s no measurable change"),
        (PRICE, "price no measurable change"),
        ("time_to_first_token", "TTFT no measurable change"),
    ],
)
def test_noise_has_no_number(metric: str, words: str) -> None:
    assert describe_one(one(metric, 2.5, is_noise=True)) == words


def test_a_whole_load_is_one_line() -> None:
    line = describe([one(OUTPUT, 1.83), one(PRICE, 0.39), one("time_to_first_token", 1.1, True)])

    assert line == "1.8x as many tokens/s, 61 % cheaper, TTFT no measurable change"


def test_too_few_rounds_are_said_once() -> None:
    line = describe([one(OUTPUT, 1.83, None), one(PRICE, 0.39, None)])

    assert line == (
        "1.8x as many tokens/s, 61 % cheaper, from fewer than 3 rounds, so it may be noise"
    )


def test_the_closing_sentence_is_of_the_cheapest_under_the_greatest_load() -> None:
    sentence = closing(
        variant("bf16", load([100] * 3, concurrency=1), load([400, 404, 398], usd_hour=25.0)),
        variant("fp8", load([90] * 3, concurrency=1), load([500, 505, 499], usd_hour=25.0)),
        variant(
            "awq",
            load([10] * 3, concurrency=1),
            load([920, 930, 915], usd_hour=22.5),
            quality=quality(0.0009, 0.001),
        ),
    )

    assert sentence == (
        "awq against bf16, at 8 requests at once: same quality within noise,"
        " 2.3x as many tokens/s, 61 % cheaper per token."
    )


def test_a_measurable_loss_of_quality_is_said() -> None:
    sentence = closing(
        variant("bf16", load([100] * 3)),
        variant("awq", load([200] * 3), quality=quality(0.0183, 0.001)),
    )

    assert sentence == (
        "awq against bf16, at 8 requests at once: measurably other answers (mean KLD 0.0183),"
        " 2.0x as many tokens/s."
    )


def test_a_load_with_many_errors_is_not_the_one_to_take_home() -> None:
    sentence = closing(
        variant("bf16", load([100] * 3), load([100] * 3, concurrency=64)),
        variant("awq", load([200] * 3), load([900] * 3, concurrency=64, failed=50)),
    )

    assert sentence == "awq against bf16, at 8 requests at once: 2.0x as many tokens/s."


def test_noise_is_called_no_difference() -> None:
    sentence = closing(variant("bf16", load([100, 110, 90])), variant("awq", load([110, 90, 105])))

    assert sentence == "No measurable difference between bf16 and awq, at 8 requests at once."


def test_a_measurable_gain_comes_before_a_greater_one_that_may_be_noise() -> None:
    sentence = closing(
        variant("bf16", load([100, 100, 100])),
        variant("lucky", load([90, 100, 300])),
        variant("fp8", load([120, 121, 122])),
    )

    assert sentence == "fp8 against bf16, at 8 requests at once: 21 % more tokens/s."


def test_a_first_variant_that_is_best_is_not_beaten() -> None:
    sentence = closing(
        variant("bf16", load([100] * 3, usd_hour=10.0)),
        variant("large", load([120] * 3, usd_hour=15.6)),
    )

    assert sentence == "bf16 is not beaten; next is large: 30 % dearer, at 8 requests at once."


def test_a_single_round_is_said() -> None:
    sentence = closing(variant("bf16", load([100])), variant("awq", load([200])))

    assert sentence == (
        "awq against bf16, at 8 requests at once, from fewer than 3 rounds: 2.0x as many tokens/s."
    )


def test_without_a_shared_load_there_is_no_sentence() -> None:
    assert closing(variant("bf16", load([100])), variant("awq", load([1], concurrency=2))) == ""
    assert closing(variant("bf16", load([100]))) == ""
