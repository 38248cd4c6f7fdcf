"""Ready-made configurations by goal: requests that fill in what the user left open.

A preset only fills fields that are None, and lists them, so that plain options give the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from packager.core.instance import GPUS, Instance
from packager.core.request import BuildRequest

Goal = Literal["cost", "latency", "throughput"]

REQUESTS_PER_DAY = 100_000  # default load; assumed, and stated wherever it is used
MOST_REQUESTS_PER_DAY = 10**12

TPOT_LIMIT_S = 0.1  # slower than this, people read faster than the model writes

# A goal of low latency computes requests together while each token takes no longer than this
# many times what it takes alone.  Ours.
LATENCY_SLACK = 1.25

LATENCY_BATCH = 4  # of engines whose shapes are static

# method → formats of which a device must have one
QUANTIZERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"fp8": ("fp8_w8a8", "fp8_w8a16"), "awq": ("w4a16",), "nvfp4": ("nvfp4_w4a4",)}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A goal in the words that AWS uses, and what it is reached by."""

    goal: Goal
    title: str
    summary: str


PRESETS: Mapping[Goal, Preset] = MappingProxyType(
    {
        "cost": Preset(
            goal="cost",
            title="cost optimized",
            summary="fewest dollars per million tokens, at the most requests at once "
            "that still get each token in time",
        ),
        "latency": Preset(
            goal="latency",
            title="latency optimized",
            summary="shortest time per token, for as many requests at once as hardly slow it",
        ),
        "throughput": Preset(
            goal="throughput",
            title="throughput optimized",
            summary="most tokens per second from one instance, each still in time",
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A request to try, and what it adds to the user's."""

    request: BuildRequest
    changes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def options(self) -> str:
        """The command-line options that ask for it: `--goal cost --quantize awq`."""
        pairs = self.changes.items()
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in pairs)


def candidates(
    request: BuildRequest,
    instance: Instance,
    goal: Goal,
    *,
    quantized: bool,
    brings_draft: bool = False,
) -> tuple[Candidate, ...]:
    """List requests worth planning on an instance, beginning with the unchanged one.

    `quantized` says that the checkpoint is already quantized, so that it cannot be again;
    `brings_draft` that it has an MTP head of its own, which costs a reader nothing to try.
    """
    asked = None if request.quantize == "auto" else request.quantize
    named = request.model_copy(update={"instance": instance.name, "goal": goal, "quantize": asked})
    # On one instance the fewest dollars per token and the most tokens per second are one.
    aimed = {} if (request.goal == "latency") == (goal == "latency") else {"goal": goal}
    methods = (None,) if quantized else (None, *_methods(request, instance))
    return tuple(
        Candidate(request=named.model_copy(update=changes), changes=MappingProxyType(changes))
        for method in methods
        for draft in _drafts(request, goal, brings_draft=brings_draft)
        for spread in _spreads(request, instance, goal)
        for changes in [aimed | ({"quantize": method} if method else {}) | draft | spread]
    )


def _drafts(request: BuildRequest, goal: Goal, *, brings_draft: bool) -> Iterator[dict[str, str]]:
    """Yield drafts to try: where few requests are computed at once, a step has room for guesses."""
    yield {}
    if brings_draft and goal == "latency" and request.draft is None:
        yield {"draft": "mtp"}


def _methods(request: BuildRequest, instance: Instance) -> Iterator[str]:
    if request.quantizing not in (None, "auto") or instance.kind not in GPUS:
        return
    for method, formats in QUANTIZERS.items():
        if instance.formats.intersection(formats):
            yield method


def _spreads(request: BuildRequest, instance: Instance, goal: Goal) -> Iterator[dict[str, int]]:
    """Yield batches to try.

    On GPUs the planner itself chooses split and requests at once for the goal; where shapes
    are static, few slots make each token faster.
    """
    static = instance.kind == "neuron" and goal == "latency" and not request.max_batch
    yield {"max_batch": LATENCY_BATCH} if static else {}
