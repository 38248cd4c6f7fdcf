"""Results of a benchmark, as they stand in a build record and in files.

Metrics have the names and units of AIPerf 0.13 (`profile_export_aiperf.json`, schema 1.4).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from packager.core.bench_setup import BenchSetup
from packager.core.quality import QualityReport
from packager.core.reports.notebook import NotebookValue
from packager.core.speculation import Acceptance
from packager.core.startup import StartedVariant
from packager.core.strict_models import FigureDocument

SCHEMA = 1
_SPEED = "output_token_throughput"


class Metric(FigureDocument):
    """One metric of a load. Those of a whole load have `avg` alone."""

    unit: str
    avg: float
    p1: float | None = None
    p5: float | None = None
    p10: float | None = None
    p25: float | None = None
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    min: float | None = None
    max: float | None = None
    std: float | None = None  # of the population
    count: int | None = None
    sum: float | None = None


class BenchError(FigureDocument):
    """One way in which requests failed."""

    kind: str = Field(description="connection, status, cut, invalid, server, deadline")
    reason: str
    status: int | None = None
    count: int


class ContainerUse(FigureDocument):
    """What the container used while it was under load. None: the engine does not tell."""

    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    gpu_memory_bytes: int | None = None


class Prices(FigureDocument):
    """US dollars per million tokens, by formula; each of input and output charges the whole
    instance to one stream of tokens: they must never be added."""

    usd_hour: float
    source: str = Field(default="", description="where the hour's price is from, with its date")
    discount: float = 0.0
    output: float | None = Field(description="F3: output tokens of the run over its duration")
    input: float | None = Field(default=None, description="F3 for the prompts")
    total: float | None = Field(default=None, description="of all tokens, in the measured mix")
    f1: float | None = Field(default=None, description="concurrency / p50 time per output token")
    f2: float | None = Field(default=None, description="tokens of a request / latency x load")
    blended: float | None = None

    @model_serializer(mode="wrap")
    def _with_output(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write `output` where others are left out: vectors and scores have none."""
        return {**write(self), "output": self.output}


class Round(FigureDocument):
    """Headline figures of one round of a load; intervals of confidence come from several."""

    seconds: float
    requests: int
    failed: int
    output_token_throughput: float | None = None  # tokens/s
    request_throughput: float | None = None
    ttft_p50_ms: float | None = None
    tpot_p50_ms: float | None = None
    latency_p50_ms: float | None = None


class Predicted(FigureDocument):
    """What the plan predicted for a load."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    output_token_throughput: float | None = None
    band: float | None = Field(default=None, description="share by which it may be off")


class AdapterLoad(FigureDocument):
    """Requests of a load that were for one adapter; rates are over the time of the whole load."""

    name: str
    requests: int
    answered: int
    metrics: dict[str, Metric]


class BenchLoad(FigureDocument):
    """One variant under one load; all rounds together."""

    concurrency: int | None = None
    rate: float | None = None
    arrivals: Literal["poisson", "constant"] = "poisson"  # of an open loop
    requests: int = Field(description="that were sent and not cancelled")
    answered: int = Field(description="whole answers, empty ones included")
    empty: int = Field(default=0, description="answers without content, or without a known token")
    tokenizer_failed: int = 0
    cancelled: int = 0
    seconds: float
    started: str = ""  # first request sent: UTC, RFC 3339
    ended: str = ""  # last content of an answer
    metrics: dict[str, Metric] = Field(description="by AIPerf's tag, such as time_to_first_token")
    good: float | None = Field(default=None, description="share of requests within all limits")
    errors: tuple[BenchError, ...] = ()
    rounds: tuple[Round, ...] = ()
    acceptance: Acceptance | None = None
    adapters: tuple[AdapterLoad, ...] = ()
    use: ContainerUse | None = None
    prices: Prices | None = None
    predicted: Predicted | None = None
    notes: tuple[str, ...] = ()  # what a reader of these figures must know
    interrupted: str = Field(default="", description="why the load ended early")


class Boundary(FigureDocument):
    """Result of a search over concurrency."""

    what: Literal["max-concurrency", "knee"]
    feasible: int | None = Field(description="most requests at a time within the limits")
    infeasible: int | None = Field(default=None, description="least beyond them that was tried")
    breach: str = Field(default="", description="metric that was beyond its limit first")
    breach_value: float | None = None


class BenchVariant(FigureDocument):
    """One server: an image that was started, or an address."""

    name: str  # in tables: the image's or the address, without anything secret
    setup: BenchSetup = Field(default_factory=BenchSetup)
    loads: tuple[BenchLoad, ...] = ()
    quality: QualityReport | None = None
    boundary: Boundary | None = None
    start_s: float | None = Field(default=None, description="from start to the first answer")
    started: StartedVariant | None = Field(default=None, description="its cold starts, by phase")
    failure: str = Field(default="", description="why it, or loads of it, could not be measured")


class Compared(FigureDocument):
    """One variant against the first, under the same load."""

    variant: str
    concurrency: int | None = None
    rate: float | None = None
    metric: str  # AIPerf's tag
    ratio: float  # of the variant's value over the first one's
    low: float | None = Field(default=None, description="95 % interval of the ratio, from rounds")
    high: float | None = None
    is_noise: bool | None = Field(
        default=None, description="the interval includes 1; null with fewer than 3 rounds"
    )


class BenchWorkload(FigureDocument):
    """Requests that were sent."""

    name: str
    input_tokens: float | None = None  # mean, asked for
    output_tokens: float | None = None
    data: str = ""  # where requests came from; "" for made ones
    data_digest: str = ""
    seed: int = 0
    adapters: str = ""  # that they were for, with their shares, as asked
    endpoint: str = ""  # path that they were sent to, such as `/v1/chat/completions`


class Limits(FigureDocument):
    """What a request must keep to count as good (`goodput`). None: no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    latency_ms: float | None = None


class BenchReport(NotebookValue, FigureDocument):
    """A whole benchmark."""

    schema_version: int = SCHEMA
    packager_version: str
    measured: str  # when, in UTC
    machine: str = ""  # what it ran on, such as `local: 2 CPUs, AVX-512, 23 GiB`
    workload: BenchWorkload
    limits: Limits = Field(default_factory=Limits)
    rounds: int = 1
    variants: tuple[BenchVariant, ...]
    compared: tuple[Compared, ...] = ()
    pareto: tuple[tuple[str, int], ...] = Field(
        default=(), description="(variant, concurrency) that no other beats in speed and price"
    )
    notes: tuple[str, ...] = ()  # what a reader must know, such as counts that differ by >10 %
    command: str = Field(default="", description="that measures the same again, no secrets in it")
    incomplete: str = Field(default="", description="why it ended early; loads may be missing")

    def short_words(self) -> str:
        """Return what was measured, and the most tokens a second of it."""
        names = ", ".join(variant.name for variant in self.variants)
        metrics = (load.metrics for variant in self.variants for load in variant.loads)
        speeds = (one[_SPEED].avg for one in metrics if _SPEED in one)
        most = max(speeds, default=None)
        return names if most is None else f"{names}: at most {most:,.0f} tokens/s out"
