"""The measurement: the same questions to a server with its draft, and to one without.

Two addresses take turns, load by load.  Images are started one after the other, since two engines
on one machine would disturb each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from packager.addons.bench.draft_measure.figures import sameness, speed
from packager.addons.bench.draft_measure.load import Answered, ask_all
from packager.addons.bench.draft_measure.servers import (
    MeasuredServer,
    Opener,
    OpenServer,
    check_speculation,
)
from packager.addons.bench.draft_measure.ties import weigh_with
from packager.cli.serving.acceptance import acceptance
from packager.core.errors import UsageError
from packager.core.fields import CommandOption
from packager.core.probes import ProbeRequest, ProbeResponse, has_prompt, probe_request
from packager.core.samples import Samples
from packager.core.speculation import (
    CONCURRENCY,
    MEASURED_TOKENS,
    NUMERIC_NOISE,
    OTHER_NOISE,
    Sameness,
    SpeculationReport,
)

MOST_AT_ONCE = 1024
_SHOWN = 3  # reasons of failures that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftMeasureOptions:
    """Samples and loads of a measurement."""

    samples: Samples
    seed: Annotated[int, Field(ge=0, description="seed that decides which prompts are taken")] = 0
    max_tokens: Annotated[int, Field(ge=1, description="tokens of an answer at most")] = (
        MEASURED_TOKENS
    )
    concurrency: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MOST_AT_ONCE)], ...],
        Field(description="requests at a time; one at a time is always measured, for the answers"),
        CommandOption(metavar="N,N"),
    ] = CONCURRENCY

    @property
    def loads(self) -> tuple[int, ...]:
        return tuple(sorted({1, *self.concurrency}))


@dataclass(slots=True, kw_only=True)
class ServerRun:
    """Results of one server so far."""

    shown: str
    passes: dict[int, Answered] = field(default_factory=dict)
    metrics: list[str] = field(default_factory=list)  # before the first load, after each

    @property
    def asked_alone(self) -> list[ProbeResponse]:
        return [answer for answer in self.passes[1].answers if answer]

    @property
    def answers(self) -> list[ProbeResponse]:
        every = itertools.chain.from_iterable(one.answers for one in self.passes.values())
        return [answer for answer in every if answer]


def measure(
    speculative: MeasuredServer,
    plain: MeasuredServer | None,
    asked: DraftMeasureOptions,
    opener: Opener,
    *,
    measured: str,
    on_progress: Callable[[str], None],
) -> SpeculationReport:
    """Send all requests to both servers under every load; return the figures."""
    samples = [sample for sample in asked.samples.samples if has_prompt(sample)]
    if not samples:
        raise UsageError(
            f"{asked.samples.source!r} holds nothing that can be asked",
            hint="conversations need a turn of the user, prompts and texts some words",
        )
    questions = [probe_request(sample, asked.max_tokens) for sample in samples]
    work = MeasurementWork(questions=questions, loads=asked.loads, on_progress=on_progress)
    noise = NUMERIC_NOISE.get(speculative.precision, OTHER_NOISE)
    second: ServerRun | None = None
    same: Sameness | None = None
    if plain is not None and speculative.is_address and plain.is_address:
        with opener.open(speculative) as one, opener.open(plain) as other:
            first, second = work.in_turns(one, other)
            same = work.compare(first, second, other, noise)
    else:
        with opener.open(speculative) as one:
            first = work.alone(one, wanted=True)
        if plain is not None:
            with opener.open(plain) as other:
                second = work.alone(
                    other, wanted=False, switched_off=plain.name == speculative.name
                )
                same = work.compare(first, second, other, noise)
    return SpeculationReport(
        server=first.shown,
        plain=second.shown if second else "",
        measured=measured,
        data=asked.samples.source,
        data_digest=asked.samples.digest,
        samples=len(samples),
        seed=asked.seed,
        max_tokens=asked.max_tokens,
        acceptance=acceptance(first.metrics, first.answers, first.asked_alone),
        speeds=tuple(
            speed(first.passes[load], second.passes[load] if second else None)
            for load in asked.loads
        ),
        sameness=same,
        failures=tuple(_failures([first, *([second] if second else [])])),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementWork:
    """Requests and loads that each server gets."""

    questions: Sequence[ProbeRequest]
    loads: tuple[int, ...]
    on_progress: Callable[[str], None]

    def alone(self, found: OpenServer, *, wanted: bool, switched_off: bool = False) -> ServerRun:
        """Measure one server under every load."""
        run = self._begun(found, wanted=wanted, switched_off=switched_off)
        for load in self.loads:
            self._take(found, run, load)
        return run

    def in_turns(self, speculative: OpenServer, plain: OpenServer) -> tuple[ServerRun, ServerRun]:
        """Measure two servers under every load in turns, alternating which is first."""
        pair = (
            (speculative, self._begun(speculative, wanted=True)),
            (plain, self._begun(plain, wanted=False)),
        )
        for number, load in enumerate(self.loads):
            for found, run in pair if number % 2 == 0 else reversed(pair):
                self._take(found, run, load)
        return pair[0][1], pair[1][1]

    def compare(
        self, speculative: ServerRun, plain: ServerRun, found: OpenServer, noise: float
    ) -> Sameness:
        """Compare the answers given one at a time; ask the plain server about those that part."""
        weigh = weigh_with(found, noise)
        return sameness(self.questions, speculative.passes[1], plain.passes[1], weigh, noise)

    def _begun(self, found: OpenServer, *, wanted: bool, switched_off: bool = False) -> ServerRun:
        """Send one warm-up request, and read from the metrics whether a draft is active."""
        warm = ask_all(found, self.questions[:1], 1)
        found.check(warm.lost)
        check_speculation(found, warm.metrics, wanted=wanted, switched_off=switched_off)
        return ServerRun(shown=found.shown, metrics=[warm.metrics])

    def _take(self, found: OpenServer, run: ServerRun, load: int) -> None:
        done = ask_all(found, self.questions, load)
        found.check(done.lost)
        answered = [answer for answer in done.answers if answer and not answer.error]
        if not answered:
            reason = next((answer.error for answer in done.answers if answer), "")
            raise found.failure(f"{found.shown!r} answered nothing: {reason}")
        run.passes[load] = done
        run.metrics.append(done.metrics)
        rate = sum(answer.tokens for answer in answered) / done.seconds
        self.on_progress(f"{found.shown}, concurrency {load}: {rate:.1f} tokens/s")


def _failures(runs: Sequence[ServerRun]) -> Iterator[str]:
    reasons = {
        f"{run.shown}: {answer.error}": None
        for run in runs
        for answer in run.answers
        if answer.error
    }
    yield from itertools.islice(reasons, _SHOWN)
