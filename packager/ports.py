"""Every plug-in protocol, on one page.

Implementations inherit nothing.  Describers (`Quantizer`, `Compiler`,
`ContainerFamily`) are pure; the rest touch the world.
`check` yields findings and never raises; silence means yes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from packager.core.artifact import Artifacts
from packager.core.devices import GpuUse
from packager.core.facts import ContainerFacts, Facts
from packager.core.findings import Finding
from packager.core.image import (
    BaseImage,
    Blob,
    ImageRef,
    ImageSpec,
    Layer,
    Platform,
    RemoteRange,
    SealedImage,
)
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.recipe import Step, StepInput, StepResult
from packager.core.serving import ServingConfig
from packager.core.split import Abilities
from packager.core.techniques import Scheme
from packager.core.tool import Build, ToolFacts


class Quantizer(Protocol):
    """Describes how to quantize a model; never opens its weights."""

    name: str
    tool: str  # whose facts `step` finds in `facts.tools`; "" where there is never a step
    methods: Mapping[str, tuple[Scheme, ...]]  # what `--quantize` may ask for; schemes best first

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Say why `plan.quantization` cannot, or should not, be done."""
        ...

    def step(self, facts: Facts, plan: Plan) -> Step:
        """Describe the work. Only called when `check` reported no error.

        Files of the model have no sha256 while only a plan is asked for and
        nobody has read them: the step then has no key.
        """
        ...


@runtime_checkable
class UsesGpus(Protocol):
    """A quantizer whose step can run on GPUs: on `facts.gpus` of them."""

    def gpu_use(self, facts: Facts, plan: Plan) -> GpuUse:
        """Describe the GPUs that the step can use. `facts.tools` may be empty."""
        ...


class Compiler(Protocol):
    """Describes how to compile ahead of time for one engine and device."""

    name: str
    tool: str  # whose facts `step` finds in `facts.tools`

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Say why the plan cannot be compiled. An error makes `--compile auto` pass it over."""
        ...

    def step(
        self, facts: Facts, plan: Plan, serving: ServingConfig, inputs: Mapping[str, StepInput]
    ) -> Step:
        """Describe the work. Only called when `check` reported no error.

        `serving` is what the image will be told; `inputs` are what it will serve: `model`,
        and `draft` where there is one.  Results of earlier steps among them have no files
        yet.  The base is None while only a plan is asked for and it is not at hand: the
        step then has no key where the key names it.
        """
        ...


class ContainerFamily(Protocol):
    """Describes one family of serving containers."""

    name: str

    def abilities(self, container: ContainerFacts) -> Abilities:
        """Return the layouts over devices that this version of the container can start."""
        ...

    def check(self, plan: Plan) -> Iterable[Finding]:
        """Say what the engine would refuse or silently drop."""
        ...

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:
        """Give files, environment and command line. Equal plans give equal bytes."""
        ...


class ModelSource(Protocol):
    """Finds a model and pins it."""

    name: str

    def facts(self, reference: str) -> ModelFiles:
        """Pin `reference`, refuse unsafe or incomplete models, read headers only."""
        ...


class BaseSource(Protocol):
    """Finds a base image and pins it by digest."""

    name: str

    def facts(self, reference: str, platform: Platform) -> BaseImage:
        """Read manifest and configuration; never a layer, where the medium allows it."""
        ...


class RemoteReader(Protocol):
    """Reads `RemoteRange` segments of one scheme."""

    scheme: str

    def read(self, segment: RemoteRange) -> Iterator[bytes]:
        """Yield exactly the segment's bytes, in order, or raise."""
        ...


class Executor(Protocol):
    """Runs steps in tool environments."""

    name: str

    def find_tool(self, name: str, build: Build = "cpu") -> ToolFacts:
        """Describe a tool as it is here, or as it would be installed. Installs nothing."""
        ...

    def prepare(self, name: str, build: Build = "cpu") -> None:
        """Install the tool where it is not, once for all; raise when that does not work."""
        ...

    def admit(self, step: Step) -> None:
        """Raise when the step needs more than there is here. Asked before anything is installed."""
        ...

    def run(self, step: Step, into: Path) -> StepResult:
        """Run to the end and leave the result's files in `into`, an empty directory, or raise.

        Whatever happens, no process of the step is left.
        """
        ...

    def capacity(self) -> Mapping[str, float]:
        """Report what steps have: `cpus`, `gpus`, `gpu_bytes` of each, `memory_bytes`,
        `disk_bytes`.

        What is not known is left out.
        """
        ...


class BlobWriter(Protocol):
    """Takes one blob's bytes. Nothing is visible before `commit`."""

    def write(self, chunk: memoryview) -> None:
        """Take the next bytes; the buffer may be reused afterwards."""
        ...

    def commit(self, digest: str) -> None:
        """Make the blob available under its digest, or raise."""
        ...

    def abort(self) -> None:
        """Forget everything. Never raises."""
        ...


@runtime_checkable
class Reachable(Protocol):
    """A sink that can be asked before there is an image, so that a build fails early."""

    def reach(self) -> None:
        """Connect and show credentials, or raise."""
        ...


class ImageSink(Protocol):
    """Somewhere an image can be written to. A tee feeds several from one read.

    Calls come in this order: `prepare`, then `writer` and `locate` for each
    blob (from several threads), then `publish` or `abandon` once.
    """

    def prepare(self, image: ImageSpec) -> None:
        """Refuse early: no connection, no credentials, no space, over a limit."""
        ...

    def writer(self, layer: Layer) -> BlobWriter | None:
        """Open a place for the layer's bytes; None when they are not needed (HEAD, mount)."""
        ...

    def locate(self, digest: str) -> Blob | None:
        """Say from where this sink's copy of a blob can be read; None when it cannot."""
        ...

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:
        """Write configuration and manifest, check that all is there, name it last."""
        ...

    def abandon(self) -> None:
        """Leave nothing of a failed build behind that a rerun could not use. Never raises."""
        ...
