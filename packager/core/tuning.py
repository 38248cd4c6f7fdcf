"""Result of a tune, as it stands in files: what was tried, what was not, and what is best."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from packager.core.bench import BenchReport
from packager.core.reports.notebook import NotebookValue
from packager.core.strict_models import FigureDocument

SCHEMA = 1


class TunedCandidate(FigureDocument):
    """One candidate. Unknown values are None."""

    id: str = Field(description="digest of what is built")
    name: str = Field(description="options that ask for it; `as requested` for none")
    state: Literal["best", "tied", "worse", "failed", "not measured"] = Field(
        description="tied: no measurable difference from the best"
    )
    rounds: int = 0
    score: float | None = Field(
        default=None, description="mean of the rounds; below 0 where limits are broken"
    )
    low: float | None = Field(default=None, description="95 % interval of the mean")
    high: float | None = None
    predicted: float | None = Field(default=None, description="the same figure by the plan")
    band: float | None = Field(default=None, description="share by which that may be off")
    dropped_after: int | None = Field(
        default=None, description="rounds after which others were better"
    )
    image: str | None = None
    digest: str | None = None
    build_s: float | None = None
    stage: str | None = Field(default=None, description="of a failure: build, start, load")
    reason: str | None = Field(default=None, description="of a failure, in one line")


class NotTried(FigureDocument):
    """A combination that was not measured, and why."""

    name: str
    kind: Literal["refused", "same", "hopeless"]
    why: str


class TuneReport(NotebookValue, FigureDocument):
    """A whole tune."""

    schema_version: int = SCHEMA
    packager_version: str
    model: str
    instance: str
    goal: Literal["cost", "latency", "throughput"]
    unit: str = Field(description="of scores; higher is better")
    concurrency: tuple[int, ...]
    started: str  # UTC
    journal: str
    ended: Literal["finished", "budget", "all-failed"]
    best: str | None = Field(description="name of the best candidate; None where all failed")
    keeps_limits: bool | None = None
    measurements: int
    exhaustive: int = Field(description="measurements, had all been measured in every round")
    seconds: float = Field(description="of building, starting and measuring, all runs together")
    usd: float | None = None
    candidates: tuple[TunedCandidate, ...]  # the best first
    not_tried: tuple[NotTried, ...] = ()
    request: dict[str, Any] | None = Field(default=None, description="that repeats the best build")
    images: tuple[str, ...] = Field(default=(), description="of the best build, NAME@DIGEST")
    bench: BenchReport | None = Field(default=None, description="all measurements")

    def short_words(self) -> str:
        """Return the best candidate, of how many, for which goal."""
        found = f"best of {len(self.candidates)} for {self.goal}: {self.best or 'none'}"
        return f"{self.model!r} on {self.instance}: {found}"
