"""Benchmark results as files state them, whichever tool wrote them."""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.startup import StartedVariant


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoad:
    """One concurrency of a benchmark. Times are means, or medians where only those are stated."""

    concurrency: int
    tpot_s: float  # per output token after the first
    ttft_s: float | None = None
    output_tokens_s: float | None = None
    input_tokens: float | None = None  # of a mean prompt
    output_tokens: float | None = None  # of a mean answer


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSetup:
    """Setup that a results file states. Unstated values are "" or None."""

    model: str = ""  # as the benchmark requested it
    instance: str = ""
    tp_degree: int | None = None
    quantization: str | None = None  # a method, a scheme or a precision; "none" for none
    draft: str | None = None  # a kind; "none" for none

    @property
    def is_silent(self) -> bool:
        return self == MeasuredSetup()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """The loads of one file."""

    source: str  # the file, for messages
    setup: MeasuredSetup
    loads: tuple[MeasuredLoad, ...]  # of the server as it is, with its draft
    plain_loads: tuple[MeasuredLoad, ...] = ()  # of the same server without its draft
    acceptance_length: float | None = None  # tokens of a step with the draft
    others: tuple[MeasuredRun, ...] = ()  # further servers of the file; the plan's is looked for
    started: StartedVariant | None = None  # cold starts, where the file has them

    @property
    def has_loads(self) -> bool:
        """Whether a server of the file was put under load: others were only started."""
        return any(one.loads or one.plain_loads for one in (self, *self.others))
