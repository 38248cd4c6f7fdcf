"""Figures that say how far a candidate is from its base, gathered token by token.

Everything is a running sum or a histogram of fixed size: memory does not grow
with the data.  Tokens of one text depend on each other, so errors are computed
over texts, as those of a ratio of sums (Cochran, Sampling Techniques, 6.4).

KL divergence and flips rather than accuracy: accuracy stays level while
answers change ("Accuracy is Not All You Need", arXiv 2407.09141).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

BINS = 8192
LEAST, MOST = 1e-10, 1e3  # divergences outside are counted at the ends
Z95 = 1.959964


def t95(texts: int) -> float:
    """Student's t for 95 %, as texts are few: 2.13 for 16 (Cornish and Fisher's expansion).

    With fewer than four texts nothing can be said.
    """
    free = texts - 1
    if free < 3:
        return math.nan
    z = Z95
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / free**power for power, term in enumerate(terms, 1))


@dataclass
class Ratio:
    """The mean of a per-token value over texts of unequal length, with its error."""

    texts: int = 0
    tokens: float = 0.0
    total: float = 0.0
    _tokens2: float = 0.0
    _total2: float = 0.0
    _cross: float = 0.0

    def add(self, total: float, tokens: float) -> None:
        self.texts += 1
        self.tokens += tokens
        self.total += total
        self._tokens2 += tokens * tokens
        self._total2 += total * total
        self._cross += total * tokens

    @property
    def mean(self) -> float:
        return self.total / self.tokens if self.tokens else math.nan

    @property
    def error(self) -> float:
        """The standard error of `mean`; not a number with fewer than two texts."""
        if self.texts < 2:
            return math.nan
        mean = self.mean
        spread = self._total2 - 2 * mean * self._cross + mean * mean * self._tokens2
        return math.sqrt(max(0.0, spread) * self.texts / (self.texts - 1)) / self.tokens

    @property
    def ci95(self) -> float:
        """Half the width of the 95 % confidence interval of `mean`."""
        return t95(self.texts) * self.error


class Histogram:
    """Quantiles of a positive quantity to within 0.4 %, in constant memory."""

    def __init__(self) -> None:
        self._counts = torch.zeros(BINS, dtype=torch.int64)
        self._largest = 0.0

    def add(self, values: torch.Tensor) -> None:
        clamped = values.double().clamp(LEAST, MOST)
        position = (clamped.log() - math.log(LEAST)) / (math.log(MOST) - math.log(LEAST))
        bins = (position * (BINS - 1)).round().long()
        self._counts += torch.bincount(bins.flatten(), minlength=BINS)
        self._largest = max(self._largest, float(values.max()))

    def quantile(self, share: float) -> float:
        whole = int(self._counts.sum())
        if not whole:
            return math.nan
        wanted = max(1, math.ceil(share * whole))
        place = int(torch.searchsorted(self._counts.cumsum(0), wanted))
        value = LEAST * (MOST / LEAST) ** (place / (BINS - 1))
        return 0.0 if place == 0 else min(value, self._largest)

    @property
    def largest(self) -> float:
        return self._largest


@dataclass
class Comparison:
    """Two models on the same tokens, each told the true text so far (teacher forcing)."""

    base: Ratio = field(default_factory=Ratio)  # negative log likelihood, nats
    candidate: Ratio = field(default_factory=Ratio)
    increase: Ratio = field(default_factory=Ratio)  # the candidate's minus the base's
    divergence: Ratio = field(default_factory=Ratio)  # KL(base || candidate), nats
    divergences: Histogram = field(default_factory=Histogram)
    agreed: Ratio = field(default_factory=Ratio)  # equal first choices
    answers: Ratio = field(default_factory=Ratio)  # flips, over tokens of reference answers
    lost: int = 0  # reference tokens that were the base's first choice only
    won: int = 0
    _delta2: float = 0.0  # of the true token's probability

    def add(self, base: torch.Tensor, candidate: torch.Tensor, truth: torch.Tensor,
            is_answer: torch.Tensor) -> None:  # fmt: skip
        """Take one text: logits `[T, V]` of both, true tokens `[T]`, which of them are answers.

        In float64: a divergence is a small difference of large sums, and the noise floor
        of float32 weights is below what float32 sums resolve.
        """
        sums = [0.0] * 5
        lost = won = 0
        for start in range(0, len(truth), 64):  # float64 copies of few rows at a time
            piece = slice(start, start + 64)
            p = torch.log_softmax(base[piece].double(), -1)
            q = torch.log_softmax(candidate[piece].double(), -1)
            true = truth[piece, None]
            true_p, true_q = p.gather(-1, true)[:, 0], q.gather(-1, true)[:, 0]
            terms = torch.where(p == -math.inf, 0.0, p.exp() * (p - q))
            divergence = terms.sum(-1).clamp(min=0)
            self.divergences.add(divergence)
            right_p, right_q = p.argmax(-1) == truth[piece], q.argmax(-1) == truth[piece]
            asked = is_answer[piece]
            lost += int((right_p & ~right_q & asked).sum())
            won += int((~right_p & right_q & asked).sum())
            self._delta2 += float(((true_q.exp() - true_p.exp()) ** 2).sum())
            for position, value in enumerate((
                -true_p, -true_q, true_p - true_q, divergence, p.argmax(-1) == q.argmax(-1),
            )):  # fmt: skip
                sums[position] += float(value.double().sum())
        count = len(truth)
        for ratio, total in zip(
            (self.base, self.candidate, self.increase, self.divergence, self.agreed), sums,
            strict=True,
        ):  # fmt: skip
            ratio.add(total, count)
        if answered := int(is_answer.sum()):
            self.answers.add(lost + won, answered)
        self.lost += lost
        self.won += won

    def report(self) -> dict[str, Any]:
        """The figures, plain; `*_ci95` is half the width of a 95 % confidence interval."""
        increase = (
            _exp(self.increase.mean) - 1
            if abs(self.increase.mean) > 1
            else math.expm1(self.increase.mean)
        )
        return {
            "texts": self.base.texts,
            "tokens": int(self.base.tokens),
            "perplexity_base": _number(_exp(self.base.mean)),
            "perplexity_base_ci95": _number(self.base.ci95 * _exp(self.base.mean)),
            "perplexity_candidate": _number(_exp(self.candidate.mean)),
            "perplexity_candidate_ci95": _number(self.candidate.ci95 * _exp(self.candidate.mean)),
            "perplexity_increase": _number(increase),
            "perplexity_increase_ci95": _number(self.increase.ci95 * (1 + increase)),
            "kld_mean": _number(self.divergence.mean),
            "kld_mean_ci95": _number(self.divergence.ci95),
            "kld_median": _number(self.divergences.quantile(0.5)),
            "kld_p99": _number(self.divergences.quantile(0.99)),
            "kld_max": _number(self.divergences.largest),
            "top1_agreement": _number(self.agreed.mean),
            "top1_agreement_ci95": _number(self.agreed.ci95),
            "probability_delta_rms": _number(math.sqrt(self._delta2 / self.base.tokens)),
            "answer_tokens": int(self.answers.tokens),
            "answer_flips": _number(self.answers.mean),
            "answer_tokens_lost": self.lost,
            "answer_tokens_won": self.won,
        }


@dataclass
class Generations:
    """Greedy answers of two models to the same prompts."""

    prompts: int = 0
    identical: int = 0
    tokens: int = 0
    same: int = 0  # tokens before the first difference
    first: list[int] = field(default_factory=list)  # where answers part, of those that do

    def add(self, base: list[int], candidate: list[int]) -> None:
        self.prompts += 1
        length = max(len(base), len(candidate))
        shared = next(
            (at for at, (a, b) in enumerate(zip(base, candidate, strict=False)) if a != b),
            min(len(base), len(candidate)),
        )
        self.tokens += length
        self.same += shared
        if base == candidate:
            self.identical += 1
        else:
            self.first.append(shared)

    def report(self) -> dict[str, Any]:
        first = sorted(self.first)
        return {
            "prompts": self.prompts,
            "identical": self.identical,
            "tokens_before_divergence": _number(self.same / self.tokens if self.tokens else 0.0),
            "first_divergence_median": first[len(first) // 2] if first else None,
        }


def _exp(value: float) -> float:
    """e to the value; a model that knows nothing is infinitely perplexed, not an error."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _number(value: float) -> float | None:
    """Seven digits are more than the data holds; JSON knows no NaN."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
