"""Report of a quantized model's quality."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.quality import Comparison, Generations, QualityReport
from packager.core.units import percent

NOTHING = "no measurable change"


def quality_line(report: QualityReport) -> str:
    """Return the main figures in one line."""
    found = report.quality
    parts = [_perplexity(found)]
    if report.is_measurable:
        parts += [*_divergence(found), *_choices(found), *_generation(report.generation)]
    else:
        parts.append(NOTHING)
    if report.noise is not None:
        parts.append(f"noise KLD {_figure(report.noise.kld_mean)}")
    return "quality: " + ", ".join(parts)


def quality_lines(report: QualityReport) -> Iterator[str]:
    """Describe the result in one line, then the data it was measured on."""
    yield quality_line(report)
    found = report.quality
    yield f"  {found.texts} texts, {found.tokens} tokens" + (
        f", {found.answer_tokens} of them in reference answers" if found.answer_tokens else ""
    )
    noise = report.noise
    if noise is not None:
        yield (
            f"  noise: the base against itself in another batch, on {noise.texts} texts: "
            f"KLD mean {_figure(noise.kld_mean)}, same-top-1 {_percent(noise.top1_agreement)}"
        )
    if not report.is_measurable:
        yield "  the candidate is no farther from the base than the base is from itself"


def _perplexity(found: Comparison) -> str:
    change = "no number"
    if found.perplexity_increase is not None:
        change = f"{100 * found.perplexity_increase:+.2f} %"
        if found.perplexity_increase_ci95 is not None:
            change += f" ± {100 * found.perplexity_increase_ci95:.2f}"
    before, after = _figure(found.perplexity_base, 4), _figure(found.perplexity_candidate, 4)
    return f"PPL {before} -> {after} ({change})"


def _divergence(found: Comparison) -> Iterator[str]:
    figures = {"mean": found.kld_mean, "median": found.kld_median, "p99": found.kld_p99}
    yield "KLD " + " ".join(f"{name} {_figure(value)}" for name, value in figures.items())


def _choices(found: Comparison) -> Iterator[str]:
    yield f"same-top-1 {_percent(found.top1_agreement)}"
    if found.answer_flips is not None:
        yield f"flips {_percent(found.answer_flips)}"


def _generation(found: Generations | None) -> Iterator[str]:
    if found is not None:
        yield f"generation {found.identical} of {found.prompts} identical"


def _figure(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "no number"
    return f"{value:#.{digits}g}" if 1e-3 <= abs(value) < 1000 else f"{value:.{digits}g}"


def _percent(value: float | None) -> str:
    return "no number" if value is None else percent(value, 1)
