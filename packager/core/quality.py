"""Loss of quality by quantizing, and its limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from packager.core.reports.notebook import NotebookValue
from packager.core.request import BuildRequest

# Defaults: some minutes for a small model on a CPU, errors of a few percent.
EVALUATION_SAMPLES, EVALUATION_TOKENS = 64, 512
# Limits where the request gives none.  Sound models are within them by every scheme: MXFP4 costs
# tiny-llama the most, a KLD of 0.147 and 22 % of its first choices (tests/live/test_quantize.py).
# Ruined ones are not: an OPT that SmoothQuant emptied had 1.88 and 0 % (2026-11-29).
MAX_KLD, MIN_TOP1 = 1.0, 0.5
TOOL = STEP = "evaluate"
RESULT = "quality.json"
NOISE_TEXTS = 8  # that the base is compared with itself on
PROMPTS, ANSWER_TOKENS = 8, 32  # greedy answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Settings of a comparison of two models; all of them affect the figures."""

    max_tokens: Annotated[int, Field(ge=2, description="tokens that each text is cut to")] = (
        EVALUATION_TOKENS
    )
    seed: Annotated[int, Field(ge=0, description="seed that decides which texts are taken")] = 0
    noise_texts: Annotated[
        int, Field(ge=0, description="texts on which the base is compared with itself")
    ] = NOISE_TEXTS
    prompts: Annotated[int, Field(ge=0, description="prompts that both models answer")] = PROMPTS
    answer_tokens: Annotated[int, Field(ge=1, description="tokens of each answer at most")] = (
        ANSWER_TOKENS
    )


class _Figures(BaseModel):
    # A worker of tomorrow may say more.
    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore", allow_inf_nan=False)


class Comparison(_Figures):
    """Two models told the same texts; None is what the texts do not tell, or no number.

    `…_ci95` is half the width of the 95 % confidence interval.
    """

    texts: int
    tokens: int
    perplexity_base: float | None
    perplexity_base_ci95: float | None
    perplexity_candidate: float | None
    perplexity_candidate_ci95: float | None
    perplexity_increase: float | None = Field(description="a share: 0.015 is 1.5 %")
    perplexity_increase_ci95: float | None
    kld_mean: float | None = Field(description="KL(base ‖ candidate) of the next token, in nats")
    kld_mean_ci95: float | None
    kld_median: float | None
    kld_p99: float | None
    kld_max: float | None
    top1_agreement: float | None = Field(description="share of tokens with equal first choices")
    top1_agreement_ci95: float | None
    probability_delta_rms: float | None = Field(description="of the true token")
    answer_tokens: int = Field(description="of reference answers")
    answer_flips: float | None = Field(
        description="share of them that are the first choice of one model only"
    )
    answer_tokens_lost: int
    answer_tokens_won: int


class Generations(_Figures):
    """Greedy answers of both to the same prompts."""

    prompts: int
    identical: int
    tokens_before_divergence: float | None = Field(description="a share of all tokens")
    first_divergence_median: int | None = Field(description="a token's place, where answers part")


class QualityReport(NotebookValue, _Figures):
    """The whole result."""

    quality: Comparison
    noise: Comparison | None = Field(description="the base against itself, in another batch")
    generation: Generations | None

    def short_words(self) -> str:
        """Return how far the candidate is from the base."""
        far = "measurably" if self.is_measurable else "not measurably"
        return f"{far} farther than noise: KLD {_shown(self.quality.kld_mean)}"

    @property
    def is_measurable(self) -> bool:
        """Whether the candidate is farther from the base than the base is from itself."""
        if self.quality.kld_mean is None:
            return True
        return self.quality.kld_mean > _upper(self.noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLimits:
    """Limits of a build. None: unlimited."""

    max_kld: float | None = None  # nats, of the mean
    min_top1: float | None = None  # a share
    max_ppl_increase: float | None = None  # a share
    defaults: frozenset[str] = frozenset()  # names of the limits that are defaults

    @property
    def words(self) -> str:
        """What the limits refuse, and which of them are defaults."""
        return " or ".join(f"{figure} {bound}" for _, figure, bound in self._limits())

    def broken_by(self, report: QualityReport) -> Iterator[str]:
        """Yield by how much each limit is exceeded; a missing figure exceeds its limit."""
        for name, figure, bound in self._limits():
            value, limit = getattr(report.quality, _FIGURES[name][2]), getattr(self, name)
            if value is None or (value < limit if name == "min_top1" else value > limit):
                shown = _shown(value) if name == "max_kld" else _percent(value)
                yield f"{figure} {shown} is {bound}"

    def _limits(self) -> Iterator[tuple[str, str, str]]:
        """Yield each limit's name, its figure, and the bound in words."""
        for name, (figure, beyond, _) in _FIGURES.items():
            limit = getattr(self, name)
            if limit is not None:
                shown = f"{limit:g}" if name == "max_kld" else _percent(limit)
                yield name, figure, f"{beyond} {shown}{' (default)' * (name in self.defaults)}"


# Limits: what they are called, on which side they are exceeded, and the figure.
_FIGURES = {
    "max_kld": ("mean KLD", "over", "kld_mean"),
    "min_top1": ("same-top-1", "under", "top1_agreement"),
    "max_ppl_increase": ("perplexity increase", "over", "perplexity_increase"),
}


def limits_of(request: BuildRequest) -> QualityLimits:
    """Return the limits of a build whose quality is measured: the request's, else the defaults."""
    held = {"max_kld": MAX_KLD, "min_top1": MIN_TOP1}
    given = {name: value for name in _FIGURES if (value := getattr(request, name)) is not None}
    return QualityLimits(**{**held, **given}, defaults=frozenset(held.keys() - given.keys()))


def _upper(noise: Comparison | None) -> float:
    """What the base's own noise explains of a divergence."""
    if noise is None or noise.kld_mean is None:
        return 0.0
    return noise.kld_mean + (noise.kld_mean_ci95 or 0.0)


def _shown(value: float | None) -> str:
    return "(no number)" if value is None else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "(no number)" if value is None else f"{100 * value:.4g} %"
