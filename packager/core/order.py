"""A step as one machine asks another to run it, and what comes back. JSON on both ways.

    asking machine ──StepOrder──▶ node: `packager warm step`
    asking machine ◀──NodeLine──  node: one a line on its stdout, the last one with the end

Files are named, not sent: the order says what each holds, and where else the
same bytes are.  Only what we made ourselves travels inside it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from packager.core.model import FileRole, TensorInfo
from packager.core.recipe import Estimate, OutputRole
from packager.core.strict_models import StrictDocument

ORDER_VERSION: Literal[2] = 2  # 1 was not written down, and knew no `ranks`
MAX_ORDER_BYTES = 64 * 1024 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024


class OrderedPart(StrictDocument):
    """Bytes that travel in the order, or that the node fetches by their address."""

    data: str = Field(default="", description="in base64")
    url: str = ""
    offset: NonNegativeInt = 0
    length: NonNegativeInt = 0
    in_order: bool = False


class OrderedFile(StrictDocument):
    """A file of an input: what it holds, and where the node may find that."""

    path: str
    role: FileRole
    size: NonNegativeInt
    sha256: str = Field(default="", description="of its bytes; always, where it has no parts")
    executable: bool = False
    parts: tuple[OrderedPart, ...] | None = Field(
        default=None, description="where every byte of it travels or is fetched; in order"
    )
    place: str = Field(default="", description="its path on the asking machine: tried here too")
    origin: str = Field(default="", description="`ModelFile.origin`")


class StepOrder(StrictDocument):
    """A step that can be cached: its result travels through the cache alone."""

    order: Literal[2] = Field(description="version; required, because defaults are not sent")
    name: str
    tool: str
    gives: OutputRole
    parameters: dict[str, Any]
    inputs: dict[str, tuple[OrderedFile, ...]]
    env: dict[str, str]
    key: dict[str, Any] = Field(description="the key document")
    needs: Estimate
    labels: dict[str, str]
    gpus: NonNegativeInt
    gpu: str = ""
    threads: NonNegativeInt = 0
    carried: tuple[str, ...] = Field(default=(), description="paths that go with the result")
    config: dict[str, Any] | None = None
    tensors: tuple[TensorInfo, ...] = Field(default=(), description="that the result must have")
    keeps_work: bool = False
    holds_weights: bool = False
    timeout_s: NonNegativeFloat
    quiet_s: NonNegativeFloat


class NodeResult(StrictDocument):
    """Result of a worker's successful run; `reused`: the result was cached."""

    versions: dict[str, str] = {}  # noqa: RUF012
    details: dict[str, Any] = {}  # noqa: RUF012
    seconds: NonNegativeFloat = 0
    peak_memory_bytes: NonNegativeInt = 0
    reused: bool = False


class NodeError(StrictDocument):
    """Error of a worker's run, in terms of `packager.core.errors`."""

    kind: str = Field(description="name of the class of the failure")
    message: str
    hint: str = ""
    log: str = ""
    exit_code: int = 70


class NodeLine(StrictDocument):
    """One line of a node. Exactly one of its fields says something."""

    node: str = Field(default="", description="the node's name; the first line")
    progress: str = ""
    log: str = Field(default="", description="more of the logs of worker and installer")
    notice: str = ""
    facts: dict[str, Any] | None = Field(default=None, description="of a tool, on this node")
    missing: tuple[str, ...] = Field(default=(), description="digests of inputs that are not here")
    result: NodeResult | None = None
    error: NodeError | None = None
