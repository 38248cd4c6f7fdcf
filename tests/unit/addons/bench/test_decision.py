"""The sentence that a benchmark's page begins with: what to take, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from packager.addons.bench.compare import compare
from packager.addons.bench.decision import decide, pick, quality_words
from packager.core.bench import BenchLoad, BenchReport, BenchVariant, Limits
from packager.estimate.performance.presets import Goal
from tests.support.bench_reports import REPORTS, even, quantized, report, twelve, unpriced, variant
from tests.support.cases import Case, cases

PLAIN, AWQ, FP8 = quantized().variants


def with_variants(found: BenchReport, *variants: BenchVariant) -> BenchReport:
    return found.model_copy(update={"variants": variants})


def with_loads(
    one: BenchVariant, change: Callable[[BenchLoad], Mapping[str, Any]], loads: slice = slice(None)
) -> BenchVariant:
    changed = tuple(load.model_copy(update=change(load)) for load in one.loads[loads])
    return one.model_copy(update={"loads": changed})


@cases("decisions")
def test_a_decision_of_a_benchmark(case: Case) -> None:
    found = decide(REPORTS[case["report"]](), case.get("goal"))

    sentence = case["sentence"]
    assert (found.verdict, found.is_sure) == (case["verdict"], case["is_sure"])
    assert [*found.doubts] == case["doubts"]
    assert found.sentence.startswith(sentence)
    assert sentence.endswith(".") is (found.sentence == sentence)
    assert (found.pick is None) is (case["verdict"] == "No answer")


def test_the_first_variant_is_compared_with_the_next_best() -> None:
    fast = variant("shop:fast", tpot_ms=10.0, ttft_ms=50.0, levels=(1, 8))
    slow = variant("shop:slow", tpot_ms=20.0, ttft_ms=50.0, levels=(1, 8))
    found = decide(report((fast, slow)), "latency")

    assert found.sentence.startswith(
        "fast is fastest for one reader, 10.3 ms per token at 1 request at once: 2.0"
    )
    assert " times as fast as slow (95 % interval " in found.sentence


def test_whoever_is_within_noise_of_the_best_is_told() -> None:
    def wandering(load: BenchLoad) -> dict[str, Any]:
        rounds = (
            one.model_copy(
                update={"output_token_throughput": (one.output_token_throughput or 0) * factor}
            )
            for one, factor in zip(load.rounds, (0.98, 1.02, 0.99), strict=True)
        )
        return {"rounds": tuple(rounds)}

    twin = with_loads(AWQ, wandering).model_copy(update={"name": AWQ.name.replace("awq", "twin")})

    assert decide(report((PLAIN, AWQ, twin))).doubts == ("Within noise of it: twin.",)


def test_a_load_within_the_limits_goes_before_a_cheaper_one_beyond_them() -> None:
    alone = [
        with_loads(one, lambda load: {"good": 1.0 if load.concurrency == 1 else 0.9})
        for one in quantized().variants
    ]

    found, within = pick(quantized(), "cost"), pick(with_variants(quantized(), *alone), "cost")

    assert found is not None and found.load.concurrency == 32
    assert within is not None and (within.load.concurrency, within.within) == (1, True)


def test_where_no_load_keeps_the_limits_the_decision_says_so() -> None:
    bad = [with_loads(one, lambda load: {"good": 0.1}) for one in quantized().variants]

    assert decide(with_variants(quantized(), *bad)).doubts == (
        "No load kept the limits: this is the best of those beyond them.",
    )


def test_a_load_that_fails_often_goes_behind_one_that_does_not() -> None:
    losing = with_loads(AWQ, lambda load: {"answered": 5})

    found = pick(with_variants(quantized(), PLAIN, losing, FP8), "cost")

    assert found is not None and found.variant.name.endswith(":fp8")


def test_a_quantized_variant_of_unknown_quality_is_doubted() -> None:
    unknown = [one.model_copy(update={"quality": None}) for one in quantized().variants]

    assert decide(with_variants(quantized(), *unknown)).doubts == (
        "Its quality was not measured: `packager build --evaluate` does.",
    )


def test_a_benchmark_that_ended_early_is_doubted() -> None:
    cut = quantized().model_copy(update={"incomplete": "interrupted"})

    assert decide(cut).doubts == ("The benchmark ended early: interrupted.",)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param(PLAIN, "not quantized", id="original"),
        pytest.param(AWQ, "94.7 % same first choice, mean KLD 0.018", id="changed"),
        pytest.param(FP8, "no measurable change", id="noise"),
        pytest.param(twelve().variants[4], "quantized, not measured", id="not measured"),
        pytest.param(unpriced().variants[0], "not known", id="unknown"),
    ],
)
def test_quality_is_told_in_a_few_words(found: BenchVariant, words: str) -> None:
    assert quality_words(found) == words


def test_answers_of_one_token_are_compared_by_their_latency() -> None:
    def bare(load: BenchLoad) -> dict[str, Any]:
        kept = {tag: one for tag, one in load.metrics.items() if tag == "request_latency"}
        rounds = tuple(one.model_copy(update={"tpot_p50_ms": None}) for one in load.rounds)
        return {"metrics": kept, "prices": None, "rounds": rounds}

    variants = tuple(with_loads(one, bare) for one in even().variants)
    changes = {"variants": variants, "compared": compare(variants), "limits": Limits()}

    assert decide(even().model_copy(update=changes), "latency").sentence == (
        "other is fastest for one reader, 5,170 ms per answer at 1 request at once: 1.01 times as "
        "fast as one (95 % interval 1.01 to 1.01)."
    )


@pytest.mark.parametrize("name", ["drafts", "open loop", "searched", "twelve"])
@pytest.mark.parametrize("goal", ["cost", "throughput", "latency"])
def test_every_goal_has_a_sentence(name: str, goal: Goal) -> None:
    sentence = decide(REPORTS[name](), goal).sentence

    assert sentence.endswith(".")
    assert "None" not in sentence


def test_what_is_cheapest_of_those_that_answered_is_not_called_the_cheapest_of_all() -> None:
    two = slice(2)
    losing = with_loads(AWQ, lambda load: {"answered": load.requests - 2}, two)

    assert decide(report((with_loads(PLAIN, lambda load: {}, two), losing))).sentence == (
        "bf16 costs least of the loads that lost at most 1 % of their requests, $5.92 per million "
        "tokens out at 2 requests at once."
    )


def test_what_is_cheapest_within_the_limits_is_called_so() -> None:
    fast = variant("shop:fast", tpot_ms=20.0, ttft_ms=50.0, levels=(1, 32))
    slow = variant("shop:slow", tpot_ms=29.0, ttft_ms=50.0, levels=(1, 32))

    assert decide(report((slow, fast))).sentence.startswith(
        "fast costs least of the loads within the limits, $8.15 per million tokens out at 1 "
    )
