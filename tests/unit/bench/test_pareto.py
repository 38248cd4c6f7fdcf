"""Points that no other beats."""

from __future__ import annotations

import random

from packager.bench.pareto import pareto, quality_loss
from packager.core.bench_setup import BenchSetup
from packager.core.quality import QualityReport
from tests.unit.bench.variants import load, variant


def quality(kld: float, noise: float) -> QualityReport:
    """Return a report of which only the divergence matters."""

    def comparison(value: float) -> dict[str, object]:
        names = QualityReport.model_fields["quality"].annotation.model_fields
        return dict.fromkeys(names) | {
            "texts": 1,
            "tokens": 1,
            "answer_tokens": 0,
            "answer_tokens_lost": 0,
            "answer_tokens_won": 0,
            "kld_mean": value,
        }

    return QualityReport.model_validate(
        {"quality": comparison(kld), "noise": comparison(noise), "generation": None}
    )


def test_with_prices_speed_of_a_user_stands_against_dollars() -> None:
    found = pareto(
        [
            variant(
                "plain",
                load([100], concurrency=1, user_tokens_s=100, usd_hour=36),
                load([400], concurrency=8, user_tokens_s=50, usd_hour=36),
            ),
            variant(
                "awq",
                load([90], concurrency=1, user_tokens_s=90, usd_hour=36),
                load([500], concurrency=8, user_tokens_s=50, usd_hour=36),
            ),
        ]
    )

    assert found == (("plain", 1), ("awq", 8))


def test_without_a_price_of_all_throughput_stands_against_latency() -> None:
    found = pareto(
        [
            variant("plain", load([100], latency_ms=1000, usd_hour=1), load([90], latency_ms=1100)),
            variant(
                "awq", load([100], latency_ms=900), load([400], latency_ms=3000, concurrency=64)
            ),
        ]
    )

    assert found == (("awq", 8), ("awq", 64))


def test_equal_points_do_not_beat_each_other() -> None:
    found = pareto([variant("plain", load([100])), variant("awq", load([100]))])

    assert found == (("plain", 8), ("awq", 8))


def test_loads_with_many_errors_and_loads_by_a_rate_are_no_points() -> None:
    found = pareto(
        [
            variant("plain", load([100]), load([900], concurrency=64, failed=2)),
            variant("awq", load([50], latency_ms=1), load([9000], rate=8.0, latency_ms=1)),
            variant("fp8", load([10], latency_ms=1, failed=1)),
        ]
    )

    assert found == (("plain", 8), ("awq", 8))


def test_quality_joins_where_it_is_known_of_all() -> None:
    plain = variant("plain", load([100]), setup=BenchSetup(quantization="none"))
    awq = variant("awq", load([200]), quality=quality(0.02, 0.001))

    assert pareto([plain, awq]) == (("plain", 8), ("awq", 8))
    assert pareto([plain.model_copy(update={"setup": BenchSetup()}), awq]) == (("awq", 8),)


def test_a_loss_within_the_noise_is_none() -> None:
    plain = variant("plain", load([100]), setup=BenchSetup(quantization="none"))
    fp8 = variant("fp8", load([200]), quality=quality(0.0009, 0.001))

    assert quality_loss(fp8) == 0.0
    assert pareto([plain, fp8]) == (("fp8", 8),)


def test_every_point_left_out_is_beaten_and_no_point_kept_is() -> None:
    chance = random.Random(0)
    points = [(chance.randint(1, 20), chance.randint(1, 20)) for _ in range(60)]
    loads = [
        load([float(tokens)], latency_ms=float(latency), concurrency=at + 1)
        for at, (tokens, latency) in enumerate(points)
    ]

    found = {concurrency for _, concurrency in pareto([variant("one", *loads)])}

    for at, (tokens, latency) in enumerate(points):
        beaten = any(
            other[0] >= tokens and other[1] <= latency and other != (tokens, latency)
            for other in points
        )
        assert (at + 1 in found) is not beaten
