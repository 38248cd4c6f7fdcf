"""Candidates and workshops of tunes without engines: known speeds, noise by seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from packager.addons.bench.tune.candidates import Field, TuneCandidate
from packager.addons.bench.tune.journal import Built
from packager.addons.bench.tune.session import Taken
from packager.core.bench import BenchError, BenchLoad, Metric
from packager.core.errors import PackagerError
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from tests.support.headers import LOCAL_CPU, TINY, model_of, plan_of

ASKED = {"model": "examples/tiny-llama", "instance": "local", "goal": "throughput"}
STARTED = "2026-11-23T00:00:00Z"

# Eight candidates, 3 % apart at the top.
SPEEDS: Mapping[str, float] = {
    "as requested": 100.0,
    "--draft ngram": 130.0,
    "--quantize awq": 150.0,
    "--quantize fp8": 40.0,
    "--quantize awq --draft ngram": 200.0,
    "--quantize fp8 --draft ngram": 60.0,
    "--draft org/head": 90.0,
    "--kv-dtype fp8": 110.0,
}


def a_load(
    tokens_s: float,
    *,
    requests: int = 32,
    answered: int | None = None,
    empty: int = 0,
    ttft_ms: float = 50.0,
    latency_ms: float = 1000.0,
) -> BenchLoad:
    """Make the figures of one load: a throughput, and times that are alike for all."""
    answered = requests if answered is None else answered
    failed = requests - answered
    return BenchLoad(
        concurrency=8,
        requests=requests,
        answered=answered,
        empty=empty,
        seconds=10.0,
        metrics={
            "output_token_throughput": Metric(unit="tokens/sec", avg=tokens_s),
            "time_to_first_token": _times(ttft_ms),
            "inter_token_latency": _times(10.0),
            "request_latency": _times(latency_ms),
        },
        errors=(BenchError(kind="cut", reason="the answer ended early", count=failed),)
        if failed
        else (),
    )


def _times(value: float) -> Metric:
    return Metric(unit="ms", avg=value, p50=value, p95=value)


@cache
def a_plan() -> Plan:
    """Return a plan like any other."""
    return plan_of(model_of(TINY, name="org/tiny"), LOCAL_CPU)


def a_candidate(name: str) -> TuneCandidate:
    """Make a candidate whose id is its name without spaces."""
    return TuneCandidate(
        id=name.replace(" ", ""),
        name=name,
        request=BuildRequest(model="m", instance="local"),
        plan=a_plan(),
    )


def a_field(speeds: Mapping[str, float] = SPEEDS) -> Field:
    return Field(candidates=tuple(map(a_candidate, speeds)))


@dataclass
class FakeWorkshop:
    """Candidates of known speed; each round is off by some noise, the same in every run."""

    speeds: Mapping[str, float] = field(default_factory=lambda: SPEEDS)
    noise: float = 0.02
    seed: int = 0
    broken: Mapping[str, PackagerError] = field(default_factory=dict)  # `build NAME`, `start NAME`
    loads: Mapping[str, BenchLoad] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def build(self, candidate: TuneCandidate) -> Built:
        self.done.append(f"build {candidate.name}")
        if error := self.broken.get(f"build {candidate.name}"):
            raise error
        return Built(
            candidate=candidate.id,
            name=candidate.name,
            image=f"docker:tuned:{candidate.id}",
            digest="sha256:01",
            seconds=0.0,
        )

    def measure(self, candidate: TuneCandidate, built: Built, number: int) -> Taken:
        assert built.candidate == candidate.id
        self.done.append(f"measure {candidate.name} {number}")
        if error := self.broken.get(f"start {candidate.name}"):
            raise error
        if candidate.name in self.loads:
            return Taken(loads=(self.loads[candidate.name],))
        off = random.Random(f"{self.seed} {candidate.name} {number}").gauss(0, self.noise)
        return Taken(loads=(a_load(self.speeds[candidate.name] * (1 + off)),), start_s=1.0)

    @property
    def measured(self) -> list[str]:
        return [one.removeprefix("measure ") for one in self.done if one.startswith("measure ")]
