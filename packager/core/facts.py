"""Pinned inputs of a plan. After this, nothing is looked up any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from packager.core.adapters import Adapter
from packager.core.findings import Finding
from packager.core.image import BaseImage
from packager.core.instance import Instance
from packager.core.model import HeadValues, ModelFiles, ScaleValues
from packager.core.request import BuildRequest
from packager.core.samples import Samples
from packager.core.techniques import DraftRequest
from packager.core.tool import ToolFacts
from packager.core.traits import UNKNOWN_ENGINE, EngineTraits
from packager.core.workload import QUESTIONS, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """Serving image of a family for a kind of device, as the container catalog describes it."""

    family: str  # `vllm`, `lmi`
    kind: str  # device kind the image serves: `cpu`, `nvidia`
    engine: str  # `vllm`
    engine_version: str
    version: str  # of the container itself, "" where it has none
    default_base: str  # reference used when the user names none; "" when there is no default
    least_compute_capability: float = 0.0  # NVIDIA only: older GPUs are left out of the build
    source: str = ""
    date: str = ""
    variant: str = ""  # which image of the family: `vllm-neuron`, `tensorrt-llm`; "" the usual
    release: str = ""  # short name of the version, where people use one: `28` of LMI
    targets: tuple[str, ...] = ()  # instance families it serves: `inf2`; () all of its kind
    repository: str = ""  # in the AWS accounts of `accounts.toml`; "" when not there
    cuda: str = ""  # NVIDIA only: `13.0`; "" if unknown
    least_driver: str = ""  # of NVIDIA, for that CUDA
    inference_ami: str = ""  # the AMI version that SageMaker must boot for it
    platforms: tuple[str, ...] = ("linux/amd64",)  # that it is published or built for
    traits: EngineTraits = UNKNOWN_ENGINE  # as its family describes them; the catalog knows none


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All inputs of `make_plan`."""

    request: BuildRequest
    model: ModelFiles
    instance: Instance
    container: ContainerFacts
    base: BaseImage | None  # None while only a plan is made
    packager_version: str
    draft: ModelFiles | None = None  # files of the draft, where it has any
    head_values: HeadValues | None = None  # of a head's vocabulary; None where they were not read
    # The requested draft, or the one that `auto` resolved to; a finding where there is none.
    draft_request: DraftRequest | Finding | None = None
    draft_license: str = ""  # as the catalog states it; "" when it does not
    draft_findings: tuple[Finding, ...] = ()  # why `auto` took it, and what else would fit
    tools: Mapping[str, ToolFacts] = field(default_factory=lambda: MappingProxyType({}))
    # of the techniques that have work to do; found after the plan, before the recipe
    gpus: int = 0  # that quantizing gets; chosen with the tools
    threads: int = 1  # of the processor, likewise
    samples: Samples | None = None  # to calibrate with, chosen; None where nothing is quantized
    evaluation: Samples | None = None  # to measure quality with; None if not requested
    scales: ScaleValues | None = None  # of quantized weights; None where they were not read
    containers: tuple[ContainerFacts, ...] = ()  # of the catalog, for hints; newest first
    workload: Workload = QUESTIONS  # the requests that are planned for
    writes_tree: bool = False  # mounted weights are those of a tree that the build writes
    adapters: tuple[Adapter, ...] = ()  # in the order of their names
    merged: Adapter | None = None  # that the model's weights hold already
    # The server's variables that engines read; those of a server that others configured.
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
