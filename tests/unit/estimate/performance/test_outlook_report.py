"""Predictions with their bands: how far off each figure may be, and what says so."""

from __future__ import annotations

from dataclasses import replace

from packager.estimate.performance.predict import Band, Prediction
from packager.estimate.performance.report_outlook import (
    band_sentences,
    first_token_words,
    outlook_document,
    outlook_section,
)
from tests.support.cases import cases_of
from tests.support.known import known
from tests.support.report_values import lines_of, outlook_of, plan_on

cases = cases_of(__file__)

OUTLOOK = outlook_of(plan_on("ml.p5.4xlarge"))


def with_first(share: float | None) -> Prediction:
    bands = known(OUTLOOK.prediction.bands)
    ttft = Band(share=share, source="") if share is not None else None
    return replace(OUTLOOK.prediction, bands=replace(bands, ttft=ttft))


@cases("first_tokens")
def test_the_band_of_the_first_token_is_said_apart(share: float | None, words: str) -> None:
    assert words in band_sentences(with_first(share))[0]


def test_every_table_of_figures_names_its_bands_and_where_they_are_from() -> None:
    text = " ".join(" ".join(lines_of(outlook_section(OUTLOOK))).split())

    assert "per token ±" in text
    assert "tokens/s and prices ±" in text
    assert "points of dense models that were left out" in text


def test_a_first_token_that_must_not_be_shown_is_a_dash_and_null() -> None:
    hidden = with_first(None)
    points = outlook_document(replace(OUTLOOK, prediction=hidden))["points"]
    shown = outlook_document(replace(OUTLOOK, prediction=with_first(0.3)))["points"]

    assert first_token_words(hidden, OUTLOOK.points[0].point) == "–"
    assert points[0]["ttft_s"] is None
    assert shown[0]["ttft_s"] == OUTLOOK.points[0].point.ttft_s > 0


def test_the_document_has_each_band_with_its_source() -> None:
    bands = outlook_document(OUTLOOK)["bands"]

    assert set(bands) == {"tpot", "throughput", "ttft"}
    assert all(bands[name]["share"] > 0.2 for name in ("tpot", "throughput"))
    assert "left out" in bands["throughput"]["source"]
