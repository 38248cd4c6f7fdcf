"""Decisions: what will run where, with what memory, and what was passed over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from packager.core.adapters import AdapterPlan
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.image import LayerOptions, Platform
from packager.core.instance import Instance
from packager.core.model import ModelProfile, ModelRef
from packager.core.parsers import ChosenParser
from packager.core.prequantized import CheckpointRequirements
from packager.core.quality import Evaluation, QualityLimits
from packager.core.reports.notebook import NotebookValue
from packager.core.serving import MODEL_DIR, MOUNTED_MODEL_DIR
from packager.core.shape import Shape
from packager.core.split import Split
from packager.core.stopping import Stopping
from packager.core.techniques import Draft, Quantization, QuantizingOptions, Rejected
from packager.core.workload import QUESTIONS, Workload

SHARDED_STATE = "sharded_state"  # the engines' name of weights that are split ahead of time

# vLLM's documented default for --gpu-memory-utilization, rendered explicitly.
GPU_MEMORY_UTILIZATION = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShare:
    """Cache of one device for a sequence, in layers of the same kind."""

    block_bytes: int  # of all these layers together
    block_tokens: int = 1
    window_tokens: int = 0  # that they look back at; 0: every token is kept
    sequence_bytes: int = 0  # whatever its length: the state of linear attention

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of a token where no window has left it behind, rounded up."""
        return -(-self.block_bytes // self.block_tokens)

    def request_bytes(self, tokens: int, in_flight: int = 0) -> int:
        """Return the bytes of a sequence of `tokens`, of which `in_flight` are being read.

        A window may begin within a block, so that it needs one more.
        """
        blocks = -(-tokens // self.block_tokens)
        if self.window_tokens:
            kept = self.window_tokens - 1 + in_flight
            blocks = min(blocks, -(-kept // self.block_tokens) + 1)
        return blocks * self.block_bytes + self.sequence_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """Memory of one device, in bytes, at one tensor-parallel degree."""

    tp_degree: int
    device_bytes: int
    usable_bytes: int  # what the engine may take
    weights_bytes: int
    activations_bytes: int
    overhead_bytes: int  # engine, graphs, communication buffers
    kv_bytes_per_token: int  # on this device
    kv_bytes: int  # for the planned shape
    draft_weights_bytes: int = 0
    draft_kv_bytes: int = 0  # for the planned shape
    draft_kv_bytes_per_token: int = 0
    state_bytes: int = 0  # of linear attention, for the planned batch; does not grow with tokens
    pp_degree: int = 1
    kv_shares: tuple[KvShare, ...] = ()  # of the draft as well; (): every layer keeps every token
    kv_block_tokens: int = 1  # the cache is handed out in blocks of so many tokens
    in_flight_tokens: int = 0  # that windows of one sequence keep more while they are being read
    visible_bytes: int = 0  # of `device_bytes`, what CUDA shows; 0: all of them
    lacking_bytes: int = 0  # of what the engine needs beside `usable_bytes`: context, graphs

    @property
    def needed_bytes(self) -> int:
        return self._fixed_bytes + self.kv_bytes + self.draft_kv_bytes

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.usable_bytes and not self.lacking_bytes

    @property
    def kv_pool_bytes(self) -> int:
        """Return the bytes for sequences: what weights, activations and overhead leave."""
        return max(0, self.usable_bytes - self._fixed_bytes + self.state_bytes)

    def request_bytes(self, tokens: int, *, reading: bool = False) -> int:
        """Return what one request of `tokens` tokens, prompt and answer, takes of the pool.

        `reading` adds what its windows keep while the engine reads a step of it.
        """
        per_token = self.kv_bytes_per_token + self.draft_kv_bytes_per_token
        one = KvShare(
            block_bytes=per_token * self.kv_block_tokens, block_tokens=self.kv_block_tokens
        )
        in_flight = self.in_flight_tokens if reading else 0
        return sum(share.request_bytes(tokens, in_flight) for share in self.kv_shares or (one,))

    def count_requests(self, tokens: int, *, reading: bool = False) -> int:
        """Return how many requests of `tokens` tokens fit in the pool at once.

        `reading` counts as vLLM does when it starts: as if all of them were being read.
        """
        return self.kv_pool_bytes // max(1, self.request_bytes(tokens, reading=reading))

    def tokens_left(self, tokens: int) -> int:
        """Return the tokens that fit in the pool, in requests of `tokens` that are being read."""
        return self.kv_pool_bytes * tokens // max(1, self.request_bytes(tokens, reading=True))

    @property
    def _fixed_bytes(self) -> int:
        weights = self.weights_bytes + self.draft_weights_bytes
        return weights + self.activations_bytes + self.overhead_bytes + self.state_bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(NotebookValue):
    """The whole decision. Pure function of the facts."""

    model: ModelRef
    profile: ModelProfile
    instance: Instance
    container: ContainerFacts
    served_name: str
    shape: Shape  # of one copy: every rank and every worker takes so many requests at once
    tp_degree: int
    dtype: str  # what the engine computes with: `bf16`, `fp16`
    precision: str  # one word for tables: `bf16`, `w4a16`
    budget: MemoryBudget
    findings: tuple[Finding, ...]
    pp_degree: int = 1
    dp_degree: int = 1  # copies inside one server
    workers: int = 1  # servers that the container starts
    nodes: int = 1  # machines that one server spans
    expert_parallel: bool = False
    dp_attention: bool = False  # copies of one server hold one set of experts together
    max_prefill_tokens: int | None = None  # None: the engine's own choice
    kv_dtype: str = "auto"
    weights: Literal["baked", "mounted"] = "baked"
    one_mount: bool = False  # what is mounted is one tree of ours, the draft in it
    quantization: Quantization | None = None
    draft: Draft | None = None
    rejected: tuple[Rejected, ...] = ()
    engine_options: tuple[tuple[str, str], ...] = ()  # requested by name, passed on unchanged
    compiler: str = ""  # who compiles ahead of time; "" when the engine does when it starts
    load_format: str = ""  # how the engine reads the weights; "" where that is left to it
    streams_from: str = ""  # `s3://…` that the engine reads itself; "": a directory
    arrived: CheckpointRequirements | None = None  # of quantized weights, arrived or to be written
    containers: tuple[ContainerFacts, ...] = ()  # that hints may propose; newest first
    gpu_memory_utilization: float = GPU_MEMORY_UTILIZATION  # what the engine takes of each GPU
    workload: Workload = QUESTIONS  # the requests that are planned for
    tool_parser: ChosenParser | None = None  # None: the engine reads no tool calls
    reasoning_parser: ChosenParser | None = None
    stopping: Stopping | None = None  # None if the server's behaviour is unknown
    adapters: AdapterPlan | None = None  # None: none are served
    # What the request says to those who carry the plan out.
    base: str = ""  # reference of the base image; "" where none is named or known
    platform: Platform = field(default_factory=Platform)  # of the image
    layers: LayerOptions = field(default_factory=LayerOptions)
    quantizing: QuantizingOptions = field(default_factory=QuantizingOptions)
    evaluation: Evaluation = field(default_factory=Evaluation)
    limits: QualityLimits = field(default_factory=QualityLimits)  # of what quantizing may cost
    step_gpus: int | Literal["auto"] | None = None  # that steps may use; None, "auto": what helps
    step_threads: int | None = None  # that steps compute with

    def short_words(self) -> str:
        """Return what runs where, and how."""
        engine = f"{self.container.engine} {self.container.engine_version}"
        shape = f"{self.shape.max_batch} requests of {self.shape.max_total_tokens} tokens"
        return (
            f"{self.served_name!r} on {self.instance.name}: {engine}, TP {self.tp_degree}, "
            f"{self.precision}, {shape}"
        )

    @property
    def answers_as(self) -> str:
        """Return what answers name as the model: "" for servers that name none."""
        named = self.container.traits.answers_as
        directory = MODEL_DIR if self.weights == "baked" else MOUNTED_MODEL_DIR
        return {"name": self.served_name, "directory": directory, "nothing": ""}[named]

    @property
    def rank_threads(self) -> int:
        """Return each rank's threads of a processor; 0: unknown."""
        threads = self.instance.vcpus or 0
        return max(1, threads // self.tp_degree) if threads else 0

    @property
    def is_presharded(self) -> bool:
        """Return whether a step splits the weights into those of each rank."""
        return self.load_format == SHARDED_STATE

    @property
    def needs_base(self) -> bool:
        """Return whether a step runs in the base image, whose digest is then in its key."""
        return bool(self.compiler) or self.is_presharded

    @property
    def full_requests(self) -> int:
        """Count the requests of the longest length that one copy holds at once.

        As the engine counts them when it starts: every one is being read.
        """
        return self._held(self.shape.max_total_tokens, reading=True)

    @property
    def typical_tokens(self) -> int:
        """Return the tokens of a mean request of the workload that the server takes whole."""
        return min(self.workload.tokens, self.shape.max_total_tokens)

    @property
    def typical_requests(self) -> int:
        """Count the mean requests of the workload that one copy holds at once."""
        return self._held(self.typical_tokens)

    def _held(self, tokens: int, *, reading: bool = False) -> int:
        """Count requests of a length: static slots hold one each, whatever its length."""
        if self.instance.kind == "neuron":
            return self.shape.max_batch
        if self.instance.kind == "cpu":  # the engine takes what is planned, and no more
            pool = self.budget.kv_bytes + self.budget.draft_kv_bytes + self.budget.state_bytes
            return pool // max(1, self.budget.request_bytes(tokens))
        return self.budget.count_requests(tokens, reading=reading)

    @property
    def replicas(self) -> int:
        """Count the copies that run: ranks of data parallelism, on all workers."""
        return self.dp_degree * self.workers

    @property
    def usd_hour(self) -> float | None:
        """Return the hourly price of all machines in US dollars; None if unknown."""
        price = self.instance.price_usd_hour
        return None if price is None else price * self.nodes

    @property
    def split(self) -> Split:
        """Describe how the model is spread over the devices."""
        return Split(
            tp_degree=self.tp_degree,
            pp_degree=self.pp_degree,
            dp_degree=self.dp_degree,
            workers=self.workers,
            nodes=self.nodes,
            expert_parallel=self.expert_parallel,
            dp_attention=self.dp_attention,
        )
