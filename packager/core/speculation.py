"""What a draft does for a server, measured: acceptance, speed, the same answers.

"Speculative" is the server with its draft, "plain" the same server without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MEASURED_SAMPLES, MEASURED_TOKENS = 16, 128  # where the command says nothing
CONCURRENCY = (1, 2, 4)

Source = Literal["vllm", "sglang", "tgi", "chunks"]  # who told; `chunks` is an estimate


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Acceptance(_Figures):
    """How much of what was proposed the model took. None is what the server does not tell."""

    source: Source
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
        return self.source == "chunks"


class Load(_Figures):
    """What one server did under one load. Times are of requests that were answered."""

    requests: int
    failed: int
    output_tokens: int
    seconds: float
    tokens_per_second: float
    ttft_p50_s: float | None = Field(description="until the first text")
    tpot_p50_s: float | None = Field(description="of each token after the first, per request")
    tpot_p95_s: float | None


class Speed(_Figures):
    """Both servers under the same load."""

    concurrency: int
    speculative: Load
    plain: Load | None  # None where there is no plain server
    speedup: float | None = Field(description="how many times as many tokens a second")


class Difference(_Figures):
    """Where two answers to one prompt part."""

    sample: int  # of those that were taken, from 1
    prompt: str  # its end
    character: int  # of the answer
    token: int | None  # None where the servers do not tell tokens
    speculative: str  # from there on
    plain: str


class Sameness(_Figures):
    """Whether both servers answer alike at temperature 0, one request at a time."""

    compared: int
    identical: int
    differences: tuple[Difference, ...] = ()  # the first of them

    @property
    def is_complete(self) -> bool:
        return self.identical == self.compared


class SpeculationReport(_Figures):
    """The whole result, as it stands in a build record."""

    server: str  # image or address, without anything secret
    plain: str = ""  # what it was compared with; "" for nothing
    measured: str  # when, in UTC
    data: str
    data_digest: str
    samples: int
    seed: int
    max_tokens: int  # of an answer
    acceptance: Acceptance | None  # None where nothing tells of it
    speeds: tuple[Speed, ...]
    sameness: Sameness | None
    failures: tuple[str, ...] = ()  # the first reasons of requests that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What the figures must show. None and False: anything will do."""

    identical: bool = False
    min_acceptance_length: float | None = None
    min_speedup: float | None = None

    def missed_by(self, report: SpeculationReport) -> Iterator[str]:
        """Say of each demand that is not met how far it is off. No figure meets no demand."""
        same = report.sameness
        if self.identical:
            if not (same and same.compared and same.is_complete):
                yield _of_answers(same)
            elif missing := _answered_once(report, same):
                yield f"{missing} of {report.samples} prompts were answered by one server alone"
        if self.min_acceptance_length is not None:
            length = report.acceptance.length if report.acceptance else None
            if length is None or length < self.min_acceptance_length:
                told = _shown(length)
                yield f"acceptance length {told} is under {self.min_acceptance_length:g}"
        if self.min_speedup is not None:
            for speed in report.speeds:
                if speed.speedup is None or speed.speedup < self.min_speedup:
                    yield (
                        f"speed-up {_shown(speed.speedup)} at concurrency {speed.concurrency} "
                        f"is under {self.min_speedup:g}"
                    )


def _answered_once(report: SpeculationReport, same: Sameness) -> int:
    """Count what cannot be compared although one answered it, of those asked one at a time."""
    alone = next(speed for speed in report.speeds if speed.concurrency == 1)
    loads = [load for load in (alone.speculative, alone.plain) if load]
    return sum(load.requests - load.failed - same.compared for load in loads)


def _of_answers(same: Sameness | None) -> str:
    if same is None or not same.compared:
        return "no answers were compared with a plain server's"
    return f"{same.compared - same.identical} of {same.compared} answers differ from the plain ones"


def _shown(value: float | None) -> str:
    return "(no number)" if value is None else f"{value:.3g}"
