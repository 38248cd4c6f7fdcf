"""Requested loads of a benchmark; the command's options are made from the fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from packager.addons.bench.load.values import Level, LoadPlan
from packager.core.bench import Limits
from packager.core.errors import UsageError
from packager.core.fields import CommandOption

MOST_AT_ONCE = 1024
RAMP = (1, 2, 4, 8, 16, 32, 64)  # default, until the server is saturated
COMPARED_ROUNDS = 3  # fewer give no interval of confidence
LEAST_REQUESTS, PER_WORKER = 32, 4
TOO_SLOW = 5.0  # times the median time to first token of the first load
TOO_MANY_ERRORS = 0.01  # of the requests
_LONGEST_S = 7 * 24 * 3600.0

FindKind = Literal["max-concurrency", "knee"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """How hard servers are pressed, how long, and what is looked for."""

    concurrency: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MOST_AT_ONCE)], ...],
        Field(
            description="requests at a time, one load each; by default 1,2,4,… up to 64, until "
            "half of the first tokens take over 5 times as long as at 1, or over 1 % of the "
            "requests fail"
        ),
        CommandOption(metavar="N,N"),
    ] = ()
    rate: Annotated[
        tuple[Annotated[float, Field(gt=0, le=1e6)], ...],
        Field(description="requests a second, whatever the answers take, one load each"),
        CommandOption(metavar="RATE"),
    ] = ()
    arrivals: Annotated[
        Literal["poisson", "constant"],
        Field(description="how requests of a rate follow each other"),
    ] = "poisson"
    requests: Annotated[
        int | None,
        Field(ge=1, description="requests of a load; by default 32, or 4 for each at a time"),
    ] = None
    duration_s: Annotated[
        float | None,
        Field(gt=0, le=_LONGEST_S, description="send for so long instead of so many"),
        CommandOption(flag="--duration", metavar="TIME"),
    ] = None
    warm_up: Annotated[
        int, Field(ge=0, le=10_000, description="requests before each load, which are not counted")
    ] = 2
    rounds: Annotated[
        int | None,
        Field(
            ge=1,
            le=1000,
            description="times that every load is measured; from 3 on there are intervals of "
            "confidence. By default 1, and 3 where several servers are compared",
        ),
    ] = None
    request_timeout_s: Annotated[
        float,
        Field(gt=0, le=_LONGEST_S, description="time until an answer must be complete"),
        CommandOption(flag="--request-timeout", metavar="TIME"),
    ] = 600.0
    find: Annotated[
        FindKind | None,
        Field(
            description="search: the most requests at a time within the limits, or the knee, "
            "where more of them cost more time than they gain throughput"
        ),
    ] = None
    most: Annotated[
        int,
        Field(ge=1, le=MOST_AT_ONCE, description="most requests at a time that a search tries"),
        CommandOption(flag="--find-up-to", metavar="N"),
    ] = 256
    ttft_ms: Annotated[
        float | None,
        Field(gt=0, description="limit of the time to first token, for goodput and searches"),
        CommandOption(metavar="MS"),
    ] = None
    tpot_ms: Annotated[
        float | None,
        Field(gt=0, description="limit of the time per output token, the same"),
        CommandOption(metavar="MS"),
    ] = None
    latency_ms: Annotated[
        float | None,
        Field(gt=0, description="limit of the time of a whole request, the same"),
        CommandOption(metavar="MS"),
    ] = None
    min_goodput: Annotated[
        float | None,
        Field(
            gt=0,
            le=1,
            description="fail where a smaller share of the requests keeps the limits: 0.99, in "
            "any load",
        ),
        CommandOption(metavar="SHARE"),
    ] = None

    @property
    def limits(self) -> Limits:
        return Limits(ttft_ms=self.ttft_ms, tpot_ms=self.tpot_ms, latency_ms=self.latency_ms)

    @property
    def is_ramp(self) -> bool:
        """Whether loads rise until the server has enough."""
        return not (self.concurrency or self.rate or self.find)

    @property
    def levels(self) -> tuple[Level, ...]:
        """Return the loads to measure, the lightest first; none for a search."""
        if self.find:
            return ()
        if self.rate:
            most = max(self.concurrency, default=None)
            return tuple(
                Level(rate=rate, concurrency=most, arrivals=self.arrivals)
                for rate in sorted(set(self.rate))
            )
        asked = self.concurrency or RAMP
        return tuple(Level(concurrency=number) for number in sorted(set(asked)))

    def rounds_of(self, variants: int) -> int:
        """Return how often each load of so many servers is measured."""
        return self.rounds or (COMPARED_ROUNDS if variants > 1 else 1)

    def plan(self, level: Level, seed: int) -> LoadPlan:
        """Return the load of one level."""
        requests = self.requests
        if requests is None and self.duration_s is None:
            requests = max(LEAST_REQUESTS, PER_WORKER * (level.concurrency or 0))
        return LoadPlan(
            level=level,
            requests=requests,
            duration_s=self.duration_s,
            warm_up=self.warm_up,
            request_timeout_s=self.request_timeout_s,
            seed=seed,
        )


def check_asked(asked: BenchOptions) -> None:
    """Refuse options that contradict each other, before any server is started."""
    if asked.find and (asked.concurrency or asked.rate):
        which = "--concurrency" if asked.concurrency else "--rate"
        raise UsageError(
            f"--find chooses the loads itself, and {which} names them",
            hint="leave one of them out; --find-up-to N limits what a search tries",
        )
    if len(asked.concurrency) > 1 and asked.rate:
        raise UsageError(
            "--rate takes one --concurrency: the most requests at a time",
            hint="name one number, or leave --rate out",
        )
    has_limits = asked.limits != Limits()
    if asked.find == "max-concurrency" and not has_limits:
        raise UsageError(
            "--find max-concurrency needs a limit to look for",
            hint="add --ttft-ms MS, --tpot-ms MS or --latency-ms MS; --find knee needs none",
        )
    if asked.min_goodput is not None and not has_limits:
        raise UsageError(
            "--min-goodput needs a limit that requests are good within",
            hint="add --ttft-ms MS, --tpot-ms MS or --latency-ms MS",
        )
    if asked.rate and asked.requests is None and asked.duration_s is None:
        raise UsageError(
            "--rate says nothing of how long", hint="add --duration TIME, or --requests N"
        )
