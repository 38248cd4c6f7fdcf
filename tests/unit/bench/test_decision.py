"""The sentence that a benchmark's page begins with: what to take, and how sure that is."""

from __future__ import annotations

import pytest

from packager.bench.compare import compare
from packager.bench.decision import decide, pick, quality_words
from packager.core.bench import BenchLoad, BenchReport, Limits
from tests.support.bench_reports import (
    drafts,
    even,
    failed,
    open_loop,
    partly_failed,
    quantized,
    report,
    searched,
    tiny,
    twelve,
    unpriced,
    variant,
)


def without_quality(found: BenchReport) -> BenchReport:
    variants = tuple(one.model_copy(update={"quality": None}) for one in found.variants)
    return found.model_copy(update={"variants": variants})


def test_the_cheapest_is_best_where_everything_has_a_price() -> None:
    found = decide(quantized())

    assert (found.verdict, found.is_sure, found.doubts) == ("Best", True, ())
    assert found.sentence == (
        "awq costs least, $0.32 per million tokens out at 32 requests at once: 57 % less than bf16 "
        "(95 % interval 56 % to 58 %), with 2.31 times its tokens a second."
    )


def test_the_fastest_is_best_for_latency() -> None:
    assert decide(quantized(), "latency").sentence == (
        "awq is fastest for one reader, 11.9 ms per token at 1 request at once: 2.43 times as fast "
        "as bf16 (95 % interval 2.37 to 2.48)."
    )


def test_where_a_price_is_missing_the_most_tokens_a_second_are_best() -> None:
    found = decide(unpriced())

    assert found.sentence.startswith(
        "other.example:8000 gives the most tokens a second of the loads within the limits, 178 "
    )
    assert found.doubts == (
        "Each load was measured once: the difference may be noise. Three rounds tell.",
    )
    assert not found.is_sure


def test_a_difference_within_noise_recommends_nothing() -> None:
    found = decide(even())

    assert found.verdict == "Within noise"
    assert found.sentence == (
        "No difference beyond noise between other and one: 1.00 times the price of one (95 % "
        "interval 0.99 to 1.01), with 1.00 times its tokens a second."
    )


def test_the_first_variant_is_compared_with_the_next_best() -> None:
    fast = variant("shop:fast", tpot_ms=10.0, ttft_ms=50.0, levels=(1, 8))
    slow = variant("shop:slow", tpot_ms=20.0, ttft_ms=50.0, levels=(1, 8))
    found = decide(report((fast, slow)), "latency")

    assert found.sentence.startswith(
        "fast is fastest for one reader, 10.3 ms per token at 1 request at once: 2.0"
    )
    assert " times as fast as slow (95 % interval " in found.sentence


def test_whoever_is_within_noise_of_the_best_is_told() -> None:
    plain, awq, _ = quantized().variants
    twin = awq.model_copy(
        update={
            "name": awq.name.replace("awq", "twin"),
            "loads": tuple(
                load.model_copy(
                    update={
                        "rounds": tuple(
                            one.model_copy(
                                update={
                                    "output_token_throughput": (one.output_token_throughput or 0)
                                    * factor
                                }
                            )
                            for one, factor in zip(load.rounds, (0.98, 1.02, 0.99), strict=True)
                        )
                    }
                )
                for load in awq.loads
            ),
        }
    )

    assert decide(report((plain, awq, twin))).doubts == ("Within noise of it: twin.",)


def test_one_variant_is_described_and_not_ranked() -> None:
    found = decide(tiny())

    assert (found.verdict, found.sentence) == (
        "Measured",
        "tiny:local gives 1,057 tokens/s, first token after 4 ms, 0.9 ms per token at 1 request "
        "at once.",
    )


def test_nobody_answered() -> None:
    found = decide(failed())

    assert (found.verdict, found.pick) == ("No answer", None)
    assert found.sentence == "None of the 2 variants answered a request: connection refused."


def test_losses_and_those_that_never_answered_are_doubts() -> None:
    assert decide(partly_failed()).doubts == (
        "13 of its 96 requests (13.5 %) were not answered.",
        "Not compared, since it never answered: awq.",
    )


def test_a_load_within_the_limits_goes_before_a_cheaper_one_beyond_them() -> None:
    found = pick(quantized(), "cost")
    strict = quantized().model_copy(update={"limits": Limits(ttft_ms=500, tpot_ms=30)})
    bad = tuple(
        one.model_copy(
            update={
                "loads": tuple(
                    load.model_copy(update={"good": 1.0 if load.concurrency == 1 else 0.9})
                    for load in one.loads
                )
            }
        )
        for one in strict.variants
    )
    within = pick(strict.model_copy(update={"variants": bad}), "cost")

    assert found is not None and found.load.concurrency == 32
    assert within is not None and (within.load.concurrency, within.within) == (1, True)


def test_where_no_load_keeps_the_limits_the_decision_says_so() -> None:
    worst = quantized()
    bad = tuple(
        one.model_copy(
            update={"loads": tuple(load.model_copy(update={"good": 0.1}) for load in one.loads)}
        )
        for one in worst.variants
    )
    found = decide(worst.model_copy(update={"variants": bad}))

    assert found.doubts == ("No load kept the limits: this is the best of those beyond them.",)


def test_a_load_that_fails_often_goes_behind_one_that_does_not() -> None:
    broken = quantized()
    awq = broken.variants[1]
    losing = awq.model_copy(
        update={"loads": tuple(load.model_copy(update={"answered": 5}) for load in awq.loads)}
    )
    found = pick(
        broken.model_copy(update={"variants": (broken.variants[0], losing, broken.variants[2])}),
        "cost",
    )

    assert found is not None and found.variant.name.endswith(":fp8")


def test_a_quantized_variant_of_unknown_quality_is_doubted() -> None:
    assert decide(without_quality(quantized())).doubts == (
        "Its quality was not measured: `packager build --evaluate` does.",
    )


def test_a_benchmark_that_ended_early_is_doubted() -> None:
    cut = quantized().model_copy(update={"incomplete": "interrupted"})

    assert decide(cut).doubts == ("The benchmark ended early: interrupted.",)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (quantized().variants[0], "not quantized"),
        (quantized().variants[1], "94.7 % same first choice, mean KLD 0.018"),
        (quantized().variants[2], "no measurable change"),
        (twelve().variants[4], "quantized, not measured"),
        (unpriced().variants[0], "not known"),
    ],
    ids=["original", "changed", "noise", "not measured", "unknown"],
)
def test_quality_is_told_in_a_few_words(found: object, words: str) -> None:
    assert quality_words(found) == words  # type: ignore[arg-type]


def test_answers_of_one_token_are_compared_by_their_latency() -> None:
    def bare(load: BenchLoad) -> BenchLoad:
        kept = {tag: one for tag, one in load.metrics.items() if tag == "request_latency"}
        rounds = tuple(one.model_copy(update={"tpot_p50_ms": None}) for one in load.rounds)
        return load.model_copy(update={"metrics": kept, "prices": None, "rounds": rounds})

    variants = tuple(
        one.model_copy(update={"loads": tuple(map(bare, one.loads))}) for one in even().variants
    )
    found = decide(
        even().model_copy(
            update={"variants": variants, "compared": compare(variants), "limits": Limits()}
        ),
        "latency",
    )

    assert found.sentence == (
        "other is fastest for one reader, 5,170 ms per answer at 1 request at once: 1.01 times as "
        "fast as one (95 % interval 1.01 to 1.01)."
    )


@pytest.mark.parametrize("made", [drafts, open_loop, searched, twelve])
@pytest.mark.parametrize("goal", ["cost", "throughput", "latency"])
def test_every_goal_has_a_sentence(made: object, goal: object) -> None:
    sentence = decide(made(), goal).sentence  # type: ignore[operator, arg-type]

    assert sentence.endswith(".")
    assert "None" not in sentence


def test_what_is_cheapest_of_those_that_answered_is_not_called_the_cheapest_of_all() -> None:
    plain, awq, _ = quantized().variants
    losing = awq.model_copy(
        update={
            "loads": tuple(
                load.model_copy(update={"answered": load.requests - 2}) for load in awq.loads[:2]
            )
        }
    )
    found = decide(report((plain.model_copy(update={"loads": plain.loads[:2]}), losing)))

    assert found.sentence == (
        "bf16 costs least of the loads that lost at most 1 % of their requests, $5.92 per million "
        "tokens out at 2 requests at once."
    )


def test_what_is_cheapest_within_the_limits_is_called_so() -> None:
    fast = variant("shop:fast", tpot_ms=20.0, ttft_ms=50.0, levels=(1, 32))
    slow = variant("shop:slow", tpot_ms=29.0, ttft_ms=50.0, levels=(1, 32))

    assert decide(report((slow, fast))).sentence.startswith(
        "fast costs least of the loads within the limits, $8.15 per million tokens out at 1 "
    )
