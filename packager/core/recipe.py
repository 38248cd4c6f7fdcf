"""Ordered work: each step is one run of one tool.

A step is a description.  Techniques make it without touching the world; an
executor lays its inputs out, writes the worker's specification and runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from packager.core.devices import GpuUse
from packager.core.image import BaseImage
from packager.core.model import ModelFile, TensorInfo

if TYPE_CHECKING:
    from artifact_cache.key import KeyDocument

OutputRole = Literal["model", "draft", "ranks", "compiled", "quality", "answers", "head", "opinion"]

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInput:
    """Files that a worker finds below one directory, under the paths of the files.

    `result_of` names an earlier step of the recipe whose files these are; then
    `files` is empty until that step has its result.
    """

    files: tuple[ModelFile, ...] = ()
    result_of: str = ""
    result_key: str = ""  # of that step, which says what its files are before they are there


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Amounts that decide how long one stage of a step takes, whichever machine does it."""

    stage: str  # what the worker reports meanwhile: `quantizing`
    matmul_flops: float = 0.0  # of products in 16 bits
    float32_flops: float = 0.0  # of products in 32 bits
    elements: float = 0.0  # read and written once each, in memory
    operations: float = 0.0  # started one after another, whatever their size
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    seconds: float = 0.0  # that no machine saves: starting a server, waiting
    units: tuple[float, ...] = ()  # what each unit that the worker counts costs beside the others,
    # and what comes after the last of them
    on_host: bool = False  # on the processor, also where there is a GPU
    loads_libraries: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimated resources of a step, checked before it starts; 0 means unknown."""

    memory_bytes: int = 0
    least_memory_bytes: int = 0  # where the tool can do with less, slower; 0: it cannot
    disk_bytes: int = 0  # of its results and what it writes on the way, without its inputs
    spilled_bytes: int = 0  # of disk besides, where there is less than `memory_bytes`
    seconds: float = 0.0  # of the step itself; 0: stated by `work`, or unknown
    work: tuple[Work, ...] = ()  # in order; () if the time is unknown
    method: str = ""  # what was done before by the same method says how long it takes: `awq`
    size_bytes: int = 0  # of the model that it works on
    only_here: bool = False  # its result is for the machine that makes it


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One tool run, the only environment it sees, and its cache key document.

    `key` None means the result cannot be cached.  With a key, `env` is what the
    key says and nothing else: an undeclared variable cannot reach the worker.
    """

    name: str  # short and unique in its recipe: `quantize`
    tool: str  # directory below `containers/tools/`
    gives: OutputRole
    parameters: Mapping[str, Any] = field(default_factory=lambda: NOTHING)  # plain JSON
    inputs: Mapping[str, StepInput] = field(default_factory=lambda: NOTHING)
    env: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    key: KeyDocument | None = None
    needs: Estimate = Estimate()
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)  # for people; no input
    gpus: int = 0  # that it runs on; what they make it use is in its key
    gpu_use: GpuUse = field(default_factory=GpuUse)  # that it could run on
    gpu: str = ""  # the model that all of them must be, where the result is for one
    image: BaseImage | None = None  # it runs in this image itself, not in its tool's environment
    threads: int = 0  # where their number is not in `env`, since no byte depends on it; 0: any
    places: Mapping[str, str] = field(default_factory=lambda: NOTHING)  # in that image: where
    # the files of an input lie, by role, and the result's under `output`
    carried: tuple[ModelFile, ...] = ()  # files of the source that go with the result: they are no
    # input, and no artifact holds them
    config: Mapping[str, Any] | None = None  # the source's own: the result's adds to it
    tensors: tuple[TensorInfo, ...] = ()  # the source's own: a model that is given has them all
    resumable: bool = False  # after a failure the next run finds its work directory as it was left
    holds_weights: bool = False  # its files serve alone: the model's weights stay out of the image
    timeout_s: float = 24 * 3600.0
    quiet_s: float = 1800.0  # without a line from the worker: it hangs

    def __post_init__(self) -> None:
        declared = getattr(self.key, "invocation", None)
        if declared is not None and dict(declared.env) != dict(self.env):
            raise ValueError(f"step {self.name!r} runs in another environment than its key says")

    @property
    def thread_count(self) -> int:
        """Return how many threads it computes with, wherever that is stated; 0: nowhere."""
        stated = self.env.get("OMP_NUM_THREADS", "")
        return int(stated) if stated.isdecimal() and len(stated) < 6 else self.threads


# What is done with results before they are layers: described as they are quantized while they are
# read, measured against their source, described as the engine reads a draft, described as shards
# that fit a layer.
Finish = Literal["add-adapters", "quantize", "evaluate", "lay-out-draft", "split-weights"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Steps in order, and what follows them. No steps when the model is served as it is."""

    steps: tuple[Step, ...] = ()
    finishes: tuple[Finish, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Result that a worker reports. Its files are in the directory it was given."""

    versions: Mapping[str, str] = field(default_factory=lambda: NOTHING)  # really used
    details: Mapping[str, Any] = field(default_factory=lambda: NOTHING)  # plain JSON
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    notices: tuple[str, ...] = ()
    published: bool = False  # by the machine that ran it: its files are in the shared cache alone


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """A finished step: its files, ready for the image, and how they came."""

    files: tuple[ModelFile, ...]
    reused: bool = False  # from the cache; no tool was run
    key: str = ""  # "" when the result cannot be cached
    effective: Mapping[str, Any] = field(default_factory=lambda: NOTHING)  # see `CacheStatus`
    result: StepResult = StepResult()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStatus:
    """Cache status of a step: hit, miss or unknown, as far as known before it runs."""

    step: str
    tool: str
    state: Literal["hit", "miss", "unknown"]
    reason: str = ""  # reason of missing figures
    key: str = ""
    seconds: float = 0.0  # that a hit saves, or a miss is estimated to take; 0: not known
    seconds_from: Literal["past", "estimate", ""] = ""  # runs of the past correct an estimate
    where: str = ""  # an instance that holds the step, and why; of a miss
    where_seconds: float = 0.0  # that the step takes there; 0: not known
    where_usd: float | None = None  # that all of it costs there; None: not known
    installs: bool = False  # the tool's environment would have to be made first
    differs: tuple[str, ...] = ()  # of a miss: fields in which the nearest entry differs
    effective: Mapping[str, Any] = field(default_factory=dict)  # of a larger artifact:
    # JSON pointers into the key document, and the values it makes the configuration have
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # in the key:
    # only a change of one of these rebuilds the artifact
