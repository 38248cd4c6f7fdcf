"""Predictions fitted to measurements: what is fitted, and which bands may be printed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from packager.estimate.performance.calibration import (
    PLACES,
    UNPROVEN_BAND,
    Measured,
    calibrate,
    fit_sentence,
    predict_measured,
)
from packager.estimate.performance.predict import (
    ServedModel,
    Setup,
    Workload,
    predict,
    predict_point,
)
from packager.estimate.performance.published import published_table
from packager.estimate.performance.scale import UNSCALED, Scale
from tests.support.cases import Case, as_type, cases_of, read_tables
from tests.support.known import known
from tests.support.refusals import raises_code
from tests.support.served_models import EAGLE, MIXTRAL_8X7B, QWEN3_32B, setup

cases = cases_of(__file__)

QUESTIONS = Workload()
LLAMA_3_8B = as_type(read_tables(__file__)["llama_3_8b"], ServedModel)


ON_L40S = setup(QWEN3_32B, "ml.g6e.12xlarge", 4)
SETUPS = {
    "qwen3-32b-l40s": ON_L40S,
    "llama-8b-a10g": setup(LLAMA_3_8B, "ml.g5.xlarge", 1),
    "llama-8b-h100": setup(LLAMA_3_8B, "ml.p5.4xlarge", 1),
    "mixtral-h100": setup(MIXTRAL_8X7B, "ml.p5.48xlarge", 2),
    "mixtral-a10g-eagle": setup(MIXTRAL_8X7B, "ml.g5.48xlarge", 8, draft=EAGLE),
}


def times(
    found: Setup, concurrencies: tuple[int, ...], scale: Scale = UNSCALED, *factors: float
) -> list[Measured]:
    """Make measurements from the formula, each multiplied by its factor."""
    return [
        Measured(
            setup=found,
            workload=QUESTIONS,
            concurrency=concurrency,
            tpot_s=factor * predict_point(found, QUESTIONS, concurrency, scale=scale).tpot_s,
        )
        for concurrency, factor in zip(
            concurrencies, factors or (1.0,) * len(concurrencies), strict=True
        )
    ]


@pytest.mark.parametrize("found", SETUPS.values(), ids=SETUPS)
def test_one_measured_point_narrows_a_band_to_what_others_were_off_by_after_one(
    found: Setup,
) -> None:
    general, left = known(predict(found, QUESTIONS, (1, 8, 64))), published_table().remaining

    fitted = known(predict_measured(found, QUESTIONS, (1, 8, 64), times(found, (8,))))

    far = min(general.band, left.load)
    fit = known(fitted.fit)
    bands = [fit.band_at(concurrency) for concurrency in (1, 8, 64)]
    assert bands == pytest.approx([far, min(left.near, far), far])
    assert known(fitted.bands).tpot.share == pytest.approx(far)
    assert fit.scale.memory == pytest.approx(1)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"tp_degree": 2}, "layout"),
        ({"accelerator": SETUPS["llama-8b-h100"].accelerator}, "device"),
    ],
)
def test_a_point_of_another_server_moves_a_prediction_with_a_wider_band(
    changes: dict[str, Any], place: str
) -> None:
    there = replace(ON_L40S, **changes)
    point = times(there, (8,), UNSCALED, 1.5)

    fitted = known(predict_measured(ON_L40S, QUESTIONS, (8,), point))

    before = known(predict(ON_L40S, QUESTIONS, (8,)))
    assert fitted.points[0].tpot_s == pytest.approx(1.5 * before.points[0].tpot_s, rel=0.01)
    left = getattr(published_table().remaining, place)
    assert known(fitted.fit).band_at(8) == max(UNPROVEN_BAND, left)
    assert f"{PLACES[place]}: ±" in fitted.assumptions[0]  # type: ignore[index]


@cases("fits")
def test_a_fit_to_measurements(case: Case) -> None:
    scale = Scale(**case["by"]) if "by" in case else UNSCALED
    found = calibrate(times(ON_L40S, case["at"], scale, *case.get("off", ())), case["general"])

    assert {name: getattr(found, name) for name in case["fit"]} == case["fit"]
    for concurrency, band in case.get("bands", {}).items():
        near = pytest.approx(band, abs=case.get("within"))
        assert found.band_at(int(concurrency)) == near, concurrency
    if "memory" in case:
        assert found.scale.memory == pytest.approx(case["memory"], rel=0.02)
    assert found.factors > 0 or found.scale == UNSCALED


def test_a_fit_inside_a_narrow_general_band_keeps_what_that_covered_elsewhere() -> None:
    fit = calibrate(times(ON_L40S, (1, 4, 16), UNSCALED, 1.05, 1.05, 1.05), 0.06)

    far = predict_point(ON_L40S, QUESTIONS, 512).tpot_s
    moved = predict_point(ON_L40S, QUESTIONS, 512, scale=fit.scale).tpot_s
    assert 0.06 < fit.outside < 0.15
    assert moved * (1 - fit.outside) <= far * 0.94
    assert moved * (1 + fit.outside) >= far * 1.06


def test_factors_that_made_the_measurements_are_found() -> None:
    truth = Scale(memory=1.3, overhead=2.0, prefill=3.0)
    concurrencies = (1, 2, 4, 8, 16, 32, 64)
    found = replace(ON_L40S, tp_degree=2)

    fit = calibrate(times(found, concurrencies, truth), 0.4)

    for concurrency in (1, 3, 12, 50):
        assert predict_point(
            found, QUESTIONS, concurrency, scale=fit.scale
        ).tpot_s == pytest.approx(
            predict_point(found, QUESTIONS, concurrency, scale=truth).tpot_s, rel=0.05
        )


def test_points_that_contradict_each_other_widen_the_band() -> None:
    fit = calibrate(times(ON_L40S, (1, 2, 4, 8, 16, 32), UNSCALED, 1, 2.2, 1, 2.2, 1, 2.2), 0.2)

    assert fit.band > 0.4
    assert fit.outside == fit.band


def test_two_results_at_one_concurrency_that_differ_widen_the_band() -> None:
    twice = [*times(ON_L40S, (1, 4, 16, 64)), *times(ON_L40S, (16,), UNSCALED, 2.0)]

    assert calibrate(twice, 0.2).band > 0.3


@pytest.mark.parametrize("found", SETUPS.values(), ids=SETUPS)
@pytest.mark.parametrize("seed", range(12))
def test_every_measured_point_is_inside_its_band_after_calibrating(found: Setup, seed: int) -> None:
    chance = random.Random(seed)
    points = [
        replace(point, tpot_s=point.tpot_s * chance.lognormvariate(0.3, 0.5))
        for point in times(found, tuple(chance.choices(range(1, 257), k=chance.randint(1, 9))))
    ]

    fit = calibrate(points, 0.2)

    for point in points:
        predicted = predict_point(found, QUESTIONS, point.concurrency, scale=fit.scale).tpot_s
        assert abs(point.tpot_s / predicted - 1) <= fit.band_at(point.concurrency) + 1e-9
    assert fit.outside >= max(0.2 if fit.agrees else 0.4, fit.band)
    assert fit.band >= (0.1 if fit.points >= 3 else 0.16)


def test_requests_of_other_lengths_move_a_prediction_with_the_band_of_elsewhere() -> None:
    points = times(ON_L40S, (1, 4, 16), Scale(memory=2, overhead=2, prefill=2))
    summaries = Workload(name="summarising", input_tokens=3000, output_tokens=200)

    fitted = known(predict_measured(ON_L40S, summaries, (4,), points))
    before = known(predict(ON_L40S, summaries, (4,)))

    assert fitted.points[0].tpot_s == pytest.approx(2 * before.points[0].tpot_s, rel=0.05)
    assert known(fitted.fit).band == known(fitted.fit).outside < before.band
    assert "other lengths" in fitted.assumptions[0]


def test_seconds_given_as_milliseconds_are_refused_before_anything_is_fitted() -> None:
    with raises_code("ImplausibleTime", match="seconds given as milliseconds"):
        predict_measured(ON_L40S, QUESTIONS, (1, 8), times(ON_L40S, (1, 8), UNSCALED, 1e-3, 1.0))


def test_measured_tokens_per_second_have_a_band_of_their_own() -> None:
    rates = [
        replace(
            point,
            output_tokens_s=1.25
            * predict_point(ON_L40S, QUESTIONS, point.concurrency).output_tokens_s,
        )
        for point in times(ON_L40S, (1, 4, 16))
    ]

    fit = calibrate(rates, 0.2)

    assert (fit.band, fit.ttft_band) == (0.1, None)
    assert fit.throughput_band == pytest.approx(0.25, abs=0.01)
    assert "tokens/s ±25 %" in fit_sentence(fit)
    assert calibrate(rates[:2], 0.2).throughput_band is None


def measured_first(*factors: float) -> list[Measured]:
    """Make measurements of times to first token, each the predicted one multiplied."""
    return [
        replace(point, ttft_s=factor * predict_point(ON_L40S, QUESTIONS, point.concurrency).ttft_s)
        for point, factor in zip(times(ON_L40S, (1, 4, 16)[: len(factors)]), factors, strict=True)
    ]


def test_measured_times_to_first_token_have_a_band_of_their_own() -> None:
    fit = calibrate(measured_first(1.1, 1.2, 1.3), 0.2)

    assert 0.1 <= known(fit.ttft_band) < 0.3
    assert fit.band < 0.4
    assert "to the first token ±" in fit_sentence(fit)
    assert calibrate(measured_first(1.1, 1.2), 0.2).ttft_band is None


def test_a_measured_first_token_or_rate_that_is_far_off_widens_its_own_band() -> None:
    on_h100 = setup(QWEN3_32B, "ml.p5.48xlarge", 8, engine="vllm")
    right = predict_point(on_h100, QUESTIONS, 1)
    late = replace(
        times(on_h100, (1,))[0], ttft_s=9 * right.ttft_s, output_tokens_s=5 * right.output_tokens_s
    )

    found = known(known(predict_measured(on_h100, QUESTIONS, (1, 64), [late])).bands)
    before = known(known(predict(on_h100, QUESTIONS, (1, 64))).bands)

    assert known(found.ttft).share == pytest.approx(8.0)
    assert found.throughput.share == pytest.approx(4.0)
    assert found.tpot.share == before.tpot.share


def test_without_measurements_a_prediction_is_the_general_one() -> None:
    assert predict_measured(ON_L40S, QUESTIONS, (1, 8)) == predict(ON_L40S, QUESTIONS, (1, 8))


def test_measurements_of_a_device_without_published_figures_predict_nothing() -> None:
    found = setup(QWEN3_32B, "ml.m7i.8xlarge", 1)
    point = Measured(setup=found, workload=QUESTIONS, concurrency=1, tpot_s=0.1)

    assert predict_measured(found, QUESTIONS, (1,), (point,)) is None


@cases("sentences")
def test_a_prediction_says_what_it_was_fitted_to(
    concurrencies: tuple[int, ...], sentence: str
) -> None:
    slower = times(ON_L40S, concurrencies, Scale(memory=1.5, overhead=1.5, prefill=1.5))

    assert fit_sentence(calibrate(slower, 0.2)) == sentence


def test_a_thousand_measured_concurrencies_are_fitted_at_once() -> None:
    fit = calibrate(times(ON_L40S, tuple(range(1, 1001)), Scale(memory=1.4, overhead=1.4)), 0.2)

    assert (fit.points, fit.band, fit.highest) == (1000, 0.1, 1000)
