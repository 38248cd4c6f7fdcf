"""A serving image as a platform runs it, with the platform's requests and answers.

Values alone: `packager.addons.deploy.source` reads them from a record or an image, deployers of a
platform turn them into files and requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from packager.core.findings import Finding
from packager.core.instance import Instance

PORT = 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedWeights:
    """Where a container finds its weights: in its image, or in a tree that is mounted."""

    kind: Literal["baked", "mounted"] = "baked"
    uri: str = ""  # s3://BUCKET/PREFIX/ of the mounted tree; "" if unknown
    draft_uri: str = ""  # of a draft in a tree of its own


BAKED = DeployedWeights()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One image on one instance type: everything that a platform must offer it.

    What is not known is None or "", and one of `findings` says so where it matters.
    """

    name: str  # a DNS label
    image: str  # as a node pulls it: HOST/REPOSITORY:TAG, HOST/REPOSITORY@sha256:…
    digest: str = ""  # of its manifest
    media_type: str = ""  # of its manifest; "" if unread
    platform: str = "linux/amd64"
    family: str = ""
    engine: str = ""
    engine_version: str = ""
    served_name: str = ""  # that clients send as `model`
    model: str = ""  # the checkpoint, `org/name@revision`
    max_batch: int | None = None  # requests that one replica computes at once
    instance: Instance
    devices: int  # of one replica on each of its nodes; 0 on processors
    nodes: int = 1  # machines of one replica
    port: int = PORT
    health_path: str = "/ping"
    start_period_s: int | None = None  # until a server that is silent has failed
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # beside the image
    command: tuple[str, ...] = ()  # (): the image's own entry point
    arguments: tuple[str, ...] = ()  # after the image's own entry point
    variables: str = ""  # prefix of those from which the image makes its server's options
    weights: DeployedWeights = BAKED
    adapters: Mapping[str, tuple[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    # name → directory in the container, and rank
    image_bytes: int | None = None  # as it is pulled
    model_bytes: int | None = None  # of the weights, baked or mounted
    memory_bytes: int | None = None  # of the host, that one replica needs on each node
    shm_bytes: int = 0  # of /dev/shm
    scratch_bytes: int | None = None  # written to the node's disk beside the image
    pull_s: float | None = None  # predicted, of the image
    load_s: float | None = None  # predicted, from the start of the container to its first answer
    drain_s: int | None = None  # that running requests get after SIGTERM; None: until they end
    grace_s: int | None = None  # until the platform may kill the container
    drain_variable: str = ""  # that sets `drain_s`; "" where none does
    drain_option: str = ""  # the same as a word on the command line
    inference_ami: str = ""  # `InferenceAmiVersion` of SageMaker
    cuda: str = ""
    least_driver: str = ""
    metrics_path: str = ""  # of Prometheus' text; "" where the server has none
    queue_metric: str = ""  # requests that wait: a gauge at `metrics_path`; "" where none is known
    user: str = ""  # of the image's configuration, `10001` or `10001:10001`; "" is root
    read_only_root: bool = False  # works on a read-only root file system with `writable`
    writable: tuple[str, ...] = ()  # directories that the server writes to
    home: str = ""  # one of `writable`, as the image names it; "": the runtime takes its user's
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class DeployFile:
    """One file that a platform reads; never with a credential in it."""

    path: str  # relative, POSIX; names sort in the order in which they are applied
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedFiles:
    """Files of one deployment, and what was found while they were made."""

    files: tuple[DeployFile, ...]
    findings: tuple[Finding, ...] = ()  # an error among them forbids `apply`


ChangeKind = Literal["create", "update", "replace", "delete", "same"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What applying would do to one resource."""

    kind: ChangeKind
    resource: str  # `endpoint`, `Deployment`, …
    name: str
    differences: tuple[tuple[str, Any, Any], ...] = ()  # path of a field, there now, wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What was done, in order; `same` for what was there already."""

    changes: tuple[Change, ...]
    address: str = ""  # its address, once it serves


DeployState = Literal["absent", "creating", "updating", "ready", "rolling-back", "failed", "ending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployStatus:
    """State of a deployment as its platform reports it."""

    state: DeployState
    said: str  # the platform's own word
    image: str = ""  # that serves now, where the platform states it
    ready: int | None = None  # replicas that answer; None if unknown
    wanted: int | None = None
    reason: str = ""  # of a failure, in the platform's words
    address: str = ""
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
