"""Figures in one line, and what they were measured on."""

from __future__ import annotations

from packager.core.quality import Generations, QualityReport
from packager.optimize.evaluate.report import quality_line, quality_lines
from tests.support.report_values import comparison, quality_report


def test_everything_that_matters_is_in_one_line() -> None:
    assert quality_line(quality_report()) == (
        "quality: PPL 6.020 -> 6.110 (+1.50 % ± 0.30), "
        "KLD mean 0.0180 median 0.00400 p99 0.310, same-top-1 94.7 %, flips 2.1 %, "
        "generation 3 of 8 identical, noise KLD 2e-09"
    )


def test_what_the_noise_explains_is_said_to_be_none() -> None:
    line, *more = quality_lines(quality_report(kld_mean=1e-9, kld_p99=1e-8, top1_agreement=1.0))

    assert "no measurable change" in line
    assert "KLD mean" not in line
    assert any("no farther from the base" in text for text in more)


def test_what_was_not_measured_is_left_out() -> None:
    bare = QualityReport(
        quality=comparison(
            answer_flips=None, answer_tokens=0, perplexity_increase_ci95=None, perplexity_base=None
        ),
        noise=None,
        generation=None,
    )

    text = "\n".join(quality_lines(bare))

    assert "PPL no number -> 6.110 (+1.50 %)" in text
    assert not any(word in text for word in ("flips", "generation", "noise", "answers", "None"))


def test_answers_are_counted() -> None:
    told = quality_report()
    whole = told.model_copy(
        update={
            "generation": Generations(
                prompts=2, identical=2, tokens_before_divergence=1, first_divergence_median=None
            )
        }
    )

    assert "generation 2 of 2 identical" in quality_line(whole)
    assert "854 of them in reference answers" in "\n".join(quality_lines(whole))
