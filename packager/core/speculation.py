"""Measurement of speculative decoding: acceptance, speed, identical answers.

"Speculative" is the server with its draft, "plain" the same server without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from packager.core.fields import CommandOption
from packager.core.strict_models import FigureDocument

MEASURED_SAMPLES, MEASURED_TOKENS = 16, 128  # default
CONCURRENCY = (1, 2, 4)

CHUNKS = "chunks"  # source of an estimate: the server does not count
Verdict = Literal["tie", "difference", "unknown"]  # `unknown` if the server does not state it
Identity = Literal["any", "ties", "strict"]  # which answers may differ: all, those at a tie, none

# How far apart two log-probabilities may be, in nats, that the same mathematics may order either
# way.  Kernels add in another order for one token than for several, so that each logit may come
# out one step of its number format higher or lower, and the distance of two changes by two
# steps.  The highest logits of language models are between 16 and 32.  There a step is 2^(4-7) in
# bfloat16 (8 significant bits) and 2^(4-10) in float16 (11).  In float32 rounding the result is
# nothing against adding it up: some hundred roundings of 2^-24 each, of numbers up to 32.
# Quantized models compute in bfloat16.
NUMERIC_NOISE = {"bf16": 2 * 2.0**-3, "fp16": 2 * 2.0**-6, "fp32": 512 * 32 * 2.0**-24}
OTHER_NOISE = NUMERIC_NOISE["bf16"]


class Acceptance(FigureDocument):
    """Share of proposed tokens that the model accepted. None: the server does not report it."""

    source: str = Field(description="engine whose metrics told, `vllm`; `chunks` for an estimate")
    length: float | None = Field(description="tokens of a step that checks a draft, its own one in")
    rate: float | None = Field(description="share of the proposed tokens")
    drafts: int | None = Field(default=None, description="steps that checked one")
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    by_position: tuple[float, ...] = Field(
        default=(), description="share of drafts of which the first, second, … token was taken"
    )

    @property
    def is_estimate(self) -> bool:
        return self.source == CHUNKS


class Load(FigureDocument):
    """Figures of one server under one load. Times are of requests that were answered."""

    requests: int
    failed: int
    output_tokens: int
    seconds: float
    tokens_per_second: float
    ttft_p50_s: float | None = Field(description="until the first text")
    tpot_p50_s: float | None = Field(description="of each token after the first, per request")
    tpot_p95_s: float | None


class Speed(FigureDocument):
    """Both servers under the same load."""

    concurrency: int
    speculative: Load
    plain: Load | None  # None where there is no plain server
    speedup: float | None = Field(description="how many times as many tokens a second")


class Difference(FigureDocument):
    """Position where two answers to one prompt diverge."""

    sample: int  # of those that were taken, from 1
    prompt: str  # its end
    character: int  # of the answer
    token: int | None  # None if the servers do not report tokens
    speculative: str  # from there on
    plain: str
    verdict: Verdict = "unknown"
    gap: float | None = Field(
        default=None,
        description="nats from the plain server's best token to the worse of the two that were "
        "chosen; null where it does not tell, or where one is not among its best",
    )


class Sameness(FigureDocument):
    """Whether both servers answer alike at temperature 0, one request at a time."""

    compared: int
    identical: int
    ties: int = Field(
        default=0, description="that part where the plain server's best tokens are within noise"
    )
    unknown: int = Field(default=0, description="that part where the plain server tells no chances")
    noise: float | None = Field(default=None, description="nats that are taken for a tie")
    differences: tuple[Difference, ...] = ()  # the first of them, ties last

    @property
    def different(self) -> int:
        """Count the answers that differ, and not at a tie as far as is known."""
        return self.compared - self.identical - self.ties


class SpeculationReport(FigureDocument):
    """The whole result, as it stands in a build record."""

    server: str  # image or address, without anything secret
    plain: str = ""  # what it was compared with; "" without a comparison
    measured: str  # when, in UTC
    data: str
    data_digest: str
    samples: int
    seed: int
    max_tokens: int  # of an answer
    acceptance: Acceptance | None  # None if unknown
    speeds: tuple[Speed, ...]
    sameness: Sameness | None
    failures: tuple[str, ...] = ()  # the first reasons of requests that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """Required figures. None and `any`: no requirement.

    Options of `packager draft measure` are made from these fields.
    """

    identical: Annotated[
        Identity,
        Field(
            description="fail when an answer differs, or one server alone gave it; a tie, where "
            "the plain server's best tokens are equally likely, is allowed, except with `=strict`"
        ),
        CommandOption(flag="--require-identical", metavar="[=strict]"),
    ] = "any"
    min_acceptance_length: Annotated[
        float | None,
        Field(ge=1, description="fail when the acceptance length is below it"),
        CommandOption(metavar="X"),
    ] = None
    min_speedup: Annotated[
        float | None,
        Field(ge=0, description="fail when the speedup is below it, at any of the concurrencies"),
        CommandOption(metavar="X"),
    ] = None

    def missed_by(self, report: SpeculationReport) -> Iterator[str]:
        """Yield by how much each requirement is missed; a missing figure misses it."""
        same = report.sameness
        if self.identical != "any":
            strict = self.identical == "strict"
            if not (same and same.compared) or same.different or (strict and same.ties):
                yield _of_answers(same)
            elif missing := _answered_once(report, same):
                yield f"{missing} of {report.samples} prompts were answered by one server alone"
        if self.min_acceptance_length is not None:
            length = report.acceptance.length if report.acceptance else None
            if length is None or length < self.min_acceptance_length:
                shown = _shown(length)
                yield f"acceptance length {shown} is under {self.min_acceptance_length:g}"
        if self.min_speedup is not None:
            for speed in report.speeds:
                if speed.speedup is None or speed.speedup < self.min_speedup:
                    yield (
                        f"speed-up {_shown(speed.speedup)} at concurrency {speed.concurrency} "
                        f"is under {self.min_speedup:g}"
                    )


def _answered_once(report: SpeculationReport, same: Sameness) -> int:
    """Count answers to questions sent one at a time that have no answer to compare with."""
    alone = next(speed for speed in report.speeds if speed.concurrency == 1)
    loads = [load for load in (alone.speculative, alone.plain) if load]
    return sum(load.requests - load.failed - same.compared for load in loads)


def _of_answers(same: Sameness | None) -> str:
    if same is None or not same.compared:
        return "no answers were compared with a plain server's"
    differ = (
        f"{same.compared - same.identical} of {same.compared} answers differ from the plain ones"
    )
    known = (f"{same.ties} at a tie" if same.ties else "", _unknown(same))
    return ", ".join((differ, *filter(None, known)))


def _unknown(same: Sameness) -> str:
    return f"{same.unknown} where the plain server does not tell" if same.unknown else ""


def _shown(value: float | None) -> str:
    return "(no number)" if value is None else f"{value:.3g}"
