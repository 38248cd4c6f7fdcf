"""When a change can be measured, and when it is more than was allowed."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from packager.core.quality import Comparison, QualityLimits, QualityReport, limits_of
from packager.core.request import BuildRequest
from packager.core.samples import Sample, Samples, choose_others, choose_samples
from tests.support.cases import cases
from tests.support.report_values import comparison, quality_report


def report(noise: Comparison | None = None, **changes: float | None) -> QualityReport:
    return QualityReport(quality=comparison(**changes), noise=noise, generation=None)


@cases("a_limit_that_does_not_hold_is_named")
def test_a_limit_that_does_not_hold_is_named(limits: QualityLimits, said: tuple[str, ...]) -> None:
    broken = list(limits.broken_by(report()))

    assert len(broken) == len(said)
    assert all(text in line for text, line in zip(said, broken, strict=True))


@cases("limits_of_a_request")
def test_limits_are_those_of_the_request_or_defaults(
    fields: dict[str, object], refused: str
) -> None:
    request = BuildRequest.model_validate({"model": "m", "instance": "local", **fields})

    assert limits_of(request).words == refused


def test_no_number_holds_no_limit() -> None:
    nothing = report(kld_mean=None, top1_agreement=None, perplexity_increase=None)

    broken = list(QualityLimits(max_kld=100, min_top1=0, max_ppl_increase=100).broken_by(nothing))

    assert len(broken) == 3
    assert all("(no number)" in line for line in broken)
    assert nothing.is_measurable


@cases("what_the_noise_explains_is_no_change")
def test_what_the_noise_explains_is_no_change(
    found: float, noise: float | None, measurable: bool
) -> None:
    """Without a measured noise any divergence is a change."""
    known = None if noise is None else comparison(kld_mean=noise, kld_mean_ci95=noise / 10)

    assert report(known, kld_mean=found).is_measurable is measurable


def test_figures_that_are_no_numbers_are_no_report() -> None:
    document = quality_report().model_dump_json()

    assert QualityReport.model_validate_json(document) == quality_report()
    with pytest.raises(ValidationError):
        QualityReport.model_validate_json(document.replace("0.018", "NaN"))


@cases("a_limit_implies_the_shipped_texts", texts=None)
def test_a_limit_implies_the_shipped_texts(fields: dict[str, object], texts: str | None) -> None:
    request = BuildRequest.model_validate({"model": "m", "instance": "local", **fields})

    assert request.evaluation == texts


def test_quality_is_measured_on_texts_that_were_not_calibrated_on() -> None:
    found = Samples(source="s", samples=tuple(Sample(text=str(number)) for number in range(20)))
    used = choose_samples(found, 15, seed=0)

    others = choose_others(found, 10, 0, used)

    assert len(others.samples) == 5
    assert not set(others.samples) & set(used.samples)
    assert choose_others(found, 10, 0, None) == choose_samples(found, 10, 0)
    assert len(choose_others(found, 10, 0, found).samples) == 10  # there are no others
