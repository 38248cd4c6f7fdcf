"""Warm-up: a grid of requests as written, and the plan of jobs that it comes to.

A plan is a document that laptops, Ray and pods work from, each job by its
index.  It is canonical JSON (RFC 8785) without a clock: the same grid, catalog
and cache give the same bytes.  What has become of it is only in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from packager.core.instance import DeviceKind
from packager.core.request import BuildRequest

# requests of 1 know no `try_untested` and no `quantize_layer`,
# of 2 no `trust_roots` and no `base_files`, of 3 no adapters
PLAN_SCHEMA: Final = 4

# Exit codes of `packager warm one`, for schedulers: sysexits(3).
RETRIABLE = 75
PERMANENT = tuple(code for code in range(64, 79) if code != RETRIABLE)

FETCH = "fetch"  # the step that brings a model's files to where later jobs find them


class _Document(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", populate_by_name=True)


class Grid(_Document):
    """Requests as a table: every combination of the axes with every shape, less the excluded."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    defaults: dict[str, Any] = Field(
        default_factory=dict, description="fields that every request has"
    )
    axes: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="fields of a request and the values that each takes in turn",
    )
    shapes: tuple[dict[str, Any], ...] = Field(
        default=(), description="fields whose values go together, such as those of a shape"
    )
    exclude: tuple[dict[str, Any], ...] = Field(
        default=(), description="leave out what matches all fields of one; text is a pattern"
    )
    host_instance: str | None = Field(
        default=None, description="instance type that does work without an accelerator: its price"
    )


class Resources(_Document):
    """Resources of a machine that a job needs."""

    cpus: PositiveInt = 1
    memory_bytes: NonNegativeInt = 0  # 0: unknown
    disk_bytes: NonNegativeInt = 0
    accelerator: DeviceKind = "cpu"
    device: str = ""  # `A10G`, `NeuronCore-v2`; "" without an accelerator
    devices: NonNegativeInt = 0


class Job(_Document):
    """One step of one request, for whoever has its resources."""

    index: NonNegativeInt
    id: str  # the key, and where that depends on an earlier result a digest of what is asked
    step: str  # `fetch`, or the name of a step of the recipe
    tool: str = ""
    artifact: str = ""  # the key's kind; "" where there is no key yet
    key: str = ""
    model: str  # as people know it
    request: BuildRequest
    needs: tuple[NonNegativeInt, ...] = ()  # jobs that must be done before
    stage: NonNegativeInt = 0  # one more than the latest of those
    resources: Resources = Resources()
    seconds: NonNegativeInt | None = None  # None: not known
    seconds_from: Literal["past", "estimate", ""] = ""
    usd: float | None = None  # None: no time or no price is known
    instance: str = ""  # that time and price are of; "" for the machine that plans

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.step} {self.model} {self.id[:12]}"


class Hit(_Document):
    """An artifact that is there already."""

    artifact: str
    key: str
    step: str
    model: str
    seconds: NonNegativeInt = 0  # that it took to make


class RefusedFinding(_Document):
    """Reason why a request cannot be planned."""

    severity: str
    code: str
    message: str
    hint: str = ""


class Refused(_Document):
    """A request that cannot be planned; it does not stop the others."""

    request: dict[str, Any]
    error: str
    hint: str = ""
    findings: tuple[RefusedFinding, ...] = ()


class WarmPlan(_Document):
    """Jobs in dependency order, and requests that are cached or refused."""

    schema_version: Literal[1, 2, 3, 4] = Field(default=PLAN_SCHEMA, alias="schema")
    packager: str  # version: another one may ask for other keys
    requests: NonNegativeInt  # of the grid
    duplicates: NonNegativeInt = 0  # steps that another request needs, too
    idle: NonNegativeInt = 0  # requests that are served as they are
    jobs: tuple[Job, ...] = ()
    hits: tuple[Hit, ...] = ()
    refused: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()


PATIENCE_S = 10.0  # for jobs after SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of a fleet, all of it: what runs there now is not taken off."""

    name: str
    cpus: float
    memory_bytes: float
    accelerator: str = "cpu"
    device: str = ""  # "" where the fleet does not say
    devices: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """End of one attempt of a job."""

    index: int
    code: int = 0  # of `packager warm one`, negative for a signal
    said: str = ""  # its stdout
    log: str = ""  # the end of its stderr
    lost: str = ""  # why the machine or process that had it is gone
    seconds: float = 0.0  # that its process took; 0: nobody knows


State = Literal["there", "built", "failed", "infeasible", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Final state of a job."""

    job: Job
    state: State
    tries: int = 0
    lost: int = 0  # tries whose machine or process went away
    code: int = 0
    reason: str = ""
    began_s: float = 0.0  # first handed out, counted from the beginning of the run
    ended_s: float = 0.0
    work_s: float = 0.0  # of the process that succeeded


FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


def pause_before(tries: int) -> float:
    """Return for how long a failure that may pass is left alone after so many tries."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (tries - 1))


class Fleet(Protocol):
    """Machines that run `packager warm one`. A job may run more than once; that is harmless."""

    is_shared: bool  # every job mounts the submitter's cache directory

    def nodes(self) -> tuple[Node, ...]:
        """Return the machines that are available now."""
        ...

    def submit(self, job: Job) -> None:
        """Accept a job that fits some node; it starts when there is room."""
        ...

    def poll(self, timeout_s: float) -> Sequence[Ended]:
        """Return the ended attempts, waiting at most `timeout_s`."""
        ...

    def close(self) -> None:
        """Terminate running attempts; no process is left afterwards."""
        ...


def fits(needs: Resources, node: Node) -> bool:
    """Return whether an idle node could run the job."""
    if needs.cpus > node.cpus or needs.memory_bytes > node.memory_bytes:
        return False
    if not needs.devices:
        return True
    return (
        needs.accelerator == node.accelerator
        and needs.devices <= node.devices
        and needs.device in (node.device, "")
    )


def one_command(plan: str, index: int, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the command line of a job, the same everywhere, after the name of packager."""
    return ("warm", "one", "--plan", plan, "--index", str(index), *options)
