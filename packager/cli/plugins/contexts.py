"""Contexts of plug-in factories: values and functions of the current run.

`wiring` fills them in; a factory takes the fields that its implementation needs. A plug-in calls
the functions that it needs, so connections and files are opened on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packager.core.events import EventSink, ignore

if TYPE_CHECKING:
    from pathlib import Path

    from packager.core.image import BaseImage
    from packager.core.ports import ImageSink
    from packager.core.tool import Build, ToolFacts
    from packager.images.blobs import BlobReader
    from packager.images.claim_key import ClaimKeys
    from packager.images.claims import ClaimKey
    from packager.images.registry.clients import RegistryClients
    from packager.models.hub_progress import DownloadCallback
    from packager.optimize.steps.protocol import ReadBlob
    from packager.optimize.steps.ray.exchange import FileExchange
    from packager.optimize.steps.tools.environments import Environments


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """Context of a model source's factory."""

    headers_only: bool = False  # no weights are read: enough for a plan
    is_draft: bool = False
    is_adapter: bool = False  # PEFT's files of a LoRA adapter
    trust_roots: tuple[Path, ...] = ()  # that links of a directory may lead into
    on_bytes: DownloadCallback | None = None  # called with downloaded bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseContext:
    """Context of a base source's factory."""

    clients: Callable[[], RegistryClients]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """Context of a reader of existing images."""

    clients: Callable[[], RegistryClients]
    claim_key: ClaimKey | None = None  # with which claims about layers are proven


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """Context of a sink's factory, beside its target."""

    reader: BlobReader
    clients: Callable[[], RegistryClients]
    state_file: Path  # cache of file digests and of blobs in registries
    sparse_base: bool = False
    verify: bool = False  # read everything again, trust no cache
    claim_keys: Callable[[], ClaimKeys | None] = lambda: None  # raises for a key of no use
    on_warning: Callable[[str], None] = ignore
    on_event: EventSink = ignore
    beside: tuple[ImageSink, ...] = ()  # that are written before this one


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContext:
    """Context of an executor that runs steps on other machines."""

    address: str
    given: Mapping[str, str]  # variables that the nodes get
    version: str  # of packager, that the nodes must have
    exchange: Callable[[], FileExchange]
    in_image: Callable[[str], bool]  # whether a tool runs in the serving image


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorContext:
    """Context of an executor's factory."""

    environments: Environments
    work_dir: Path
    log_dir: Path
    read: ReadBlob
    on_event: EventSink = ignore
    check: bool = True  # refuse steps that need more than there is
    restart: bool = False  # of steps that an earlier run did not finish
    environment: Mapping[str, str]
    load_image: Callable[[BaseImage], str]  # into the Docker Engine; returns its name there
    cluster: Callable[[], ClusterContext]  # raises where none can be used
    find_tool: Callable[[str, Build], ToolFacts]  # for a dry run: as the machine that runs it does
    capacity: Callable[[], Mapping[str, float]]  # for a dry run: of the machine that runs it
