"""Points that no other beats."""

from __future__ import annotations

import random

from packager.addons.bench.pareto import pareto, quality_loss
from packager.core.bench_setup import BenchSetup
from packager.core.quality import QualityReport
from tests.support.cases import Case, cases
from tests.support.report_values import comparison
from tests.unit.addons.bench.variants import load, variant, variants_of


def quality(kld: float, noise: float) -> QualityReport:
    """Return a report of which only the divergence matters."""
    measured, alone = comparison(kld_mean=kld), comparison(kld_mean=noise)
    return QualityReport(quality=measured, noise=alone, generation=None)


@cases("fronts")
def test_points_that_no_other_beats(case: Case) -> None:
    assert [[*point] for point in pareto(variants_of(case["variants"]))] == case["front"]


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
