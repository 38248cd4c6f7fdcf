"""Plug-in protocols, on one page.

`Quantizer`, `Compiler`, `ContainerFamily` and `Deployer` are pure; all others perform I/O.  `check`
yields findings and never raises; no finding means yes.  An optional ability is a member with a
body: quantizers, compilers, sinks and writers inherit their port, and define what they are able to.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from packager.core.artifact import Artifacts
    from packager.core.deployment import (
        Applied,
        Change,
        Deployment,
        DeployStatus,
        RenderedFiles,
    )
    from packager.core.devices import GpuUse
    from packager.core.facts import ContainerFacts, Facts
    from packager.core.findings import Finding
    from packager.core.image import (
        Attached,
        BaseImage,
        Blob,
        Claim,
        ImageRef,
        ImageSpec,
        Layer,
        Platform,
        RemoteRange,
        SealedImage,
    )
    from packager.core.model import ModelFile, ModelFiles, WeightsHeader
    from packager.core.plan import Plan
    from packager.core.recipe import Step, StepInput, StepResult
    from packager.core.references import ImageTarget, ModelReference
    from packager.core.serving import ServingConfig
    from packager.core.techniques import Scheme
    from packager.core.tool import Build, ToolFacts
    from packager.core.traits import EngineTraits
    from packager.core.trees import Stated, Tree


class Quantizer(Protocol):
    """Describes how to quantize a model; never opens its weights."""

    name: str
    tool: str  # whose facts `step` finds in `facts.tools`; "" where there is never a step
    methods: Mapping[str, tuple[Scheme, ...]]  # what `--quantize` may ask for; schemes best first

    @abstractmethod
    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Yield findings where `plan.quantization` is impossible or inadvisable."""
        ...

    @abstractmethod
    def step(self, facts: Facts, plan: Plan) -> Step:
        """Describe the work. Only called when `check` reported no error.

        In a plan alone, unread files of the model have no sha256: the step then has no key.
        """
        ...

    def gpu_use(self, facts: Facts, plan: Plan) -> GpuUse:  # noqa: ARG002
        """Describe the GPUs that the step can use. `facts.tools` may be empty."""
        from packager.core.devices import GpuUse

        return GpuUse()

    @property
    def mixable(self) -> frozenset[str]:
        """Return the methods that one step can do beside each other, each for a part of a model."""
        return frozenset()

    @property
    def streams(self) -> bool:
        """Return whether it has no step, and `describe` instead."""
        return False

    def processor_s(self, facts: Facts, plan: Plan) -> float:  # noqa: ARG002
        """Return seconds of one processor that streaming takes, with the digests; 0: unknown."""
        return 0.0

    def for_plan(self, facts: Facts, plan: Plan) -> Quantizer:  # noqa: ARG002
        """Return who does the work of a plan: itself, or one that it chooses."""
        return self

    def describe(
        self,
        facts: Facts,  # noqa: ARG002
        plan: Plan,  # noqa: ARG002
        read_header: Callable[[ModelFile], WeightsHeader],  # noqa: ARG002
    ) -> tuple[ModelFile, ...]:
        """Return the quantized model's files, where it streams. Only headers are read."""
        return ()


class Compiler(Protocol):
    """Describes how to compile ahead of time for one engine and device."""

    name: str
    tool: str  # whose facts `step` finds in `facts.tools`

    @abstractmethod
    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Yield findings where the plan cannot be compiled; `auto` skips it on an error."""
        ...

    @abstractmethod
    def step(
        self, facts: Facts, plan: Plan, serving: ServingConfig, inputs: Mapping[str, StepInput]
    ) -> Step:
        """Describe the work. Only called when `check` reported no error.

        `serving` is the image's configuration; `inputs` are what it will serve: `model`, and
        `draft` where there is one.  Results of earlier steps among them have no files yet.  In a
        plan alone, the base is None if it is not local: a step whose key names it then has no key.
        """
        ...

    @property
    def quantizer(self) -> str:
        """Return the tool that quantizes the weights as they are compiled; "" where none does."""
        return ""


class TreeReader(Protocol):
    """Reads directories in which another tool keeps what it has compiled."""

    name: str  # as entries say where they come from
    holds: str  # contents of such a directory, for messages about a wrong one

    def read(self, root: Path, stated: Stated) -> Tree:
        """Return the artifacts that have a key; raise if one of its values is unknown."""
        ...


class ContainerFamily(Protocol):
    """Describes one family of serving containers."""

    name: str

    def traits(self, container: ContainerFacts) -> EngineTraits:
        """Return what this version of the container can start, read and report."""
        ...

    def check(self, plan: Plan) -> Iterable[Finding]:
        """Yield findings for what the engine would refuse or silently ignore."""
        ...

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:
        """Return files, environment and command line. Equal plans give equal bytes."""
        ...


class ModelSource(Protocol):
    """Finds a model and pins it."""

    name: str

    def facts(self, reference: ModelReference) -> ModelFiles:
        """Pin `reference`, refuse unsafe or incomplete models, read headers only."""
        ...


class BaseSource(Protocol):
    """Finds a base image and pins it by digest."""

    name: str

    def facts(self, target: ImageTarget, platform: Platform) -> BaseImage:
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
        """Raise if the step needs more than this machine has. Called before any installation."""
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
    """Writer of one blob. Nothing is visible before `commit`."""

    @abstractmethod
    def write(self, chunk: memoryview) -> None:
        """Write the next bytes; the buffer may be reused afterwards."""
        ...

    @abstractmethod
    def commit(self, digest: str) -> None:
        """Make the blob available under its digest, or raise."""
        ...

    @abstractmethod
    def abort(self) -> None:
        """Discard all bytes. Never raises."""
        ...

    @property
    def complete(self) -> bool:
        """Return whether `commit` needs no `write`: it holds the bytes, as a link or extents."""
        return False

    def interrupt(self) -> None:
        """Make pending calls fail, from another thread, where they may wait. Never raises."""
        return


class LayerHints(Protocol):
    """Layers that lie beside a new image, as its sink knows them."""

    @property
    def key_id(self) -> str:
        """Return the id of the key that proved digests; "" where none did."""
        ...

    def digest_of(self, layer: Layer) -> str:
        """Return the digest that `layer` is proven to have; "" where none is."""
        ...

    def has_similar(self, layer: Layer) -> bool:
        """Return whether the layer may well be there: worth hashing before sending."""
        ...


class ImageSink(Protocol):
    """Somewhere an image can be written to. A tee feeds several from one read.

    Calls come in this order: `prepare`, then `writer` and `locate` for each
    blob (from several threads), then `publish` or `abandon` once; before them, when there is no
    image yet, `preflight` and `check_base`, and after `publish`, `keep_claims` and `attach`.
    """

    @abstractmethod
    def prepare(self, image: ImageSpec) -> None:
        """Refuse early: no connection, no credentials, no space, over a limit."""
        ...

    @abstractmethod
    def writer(self, layer: Layer) -> BlobWriter | None:
        """Open a place for the layer's bytes; None when they are not needed (HEAD, mount)."""
        ...

    @abstractmethod
    def locate(self, digest: str) -> Blob | None:
        """Return where this sink's copy of a blob can be read; None when it cannot."""
        ...

    @abstractmethod
    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:
        """Write configuration and manifest, check that all is there, name it last."""
        ...

    @abstractmethod
    def abandon(self) -> None:
        """Clean up after a failed build all that a rerun could not use. Never raises."""
        ...

    def preflight(self) -> None:
        """Connect and show credentials, or raise, so that a build fails early."""
        return

    def check_base(self, base: BaseImage) -> None:  # noqa: ARG002
        """Raise where the sink's engine does not unpack a layer of the base."""
        return

    def earlier_layers(self, *, with_claims: bool) -> LayerHints | None:  # noqa: ARG002
        """Return which layers the images beside the new one have; None where it cannot know.

        Reads their manifests, and claims where these are of use.  Never raises for either.
        """
        return None

    def attach(
        self,
        image: SealedImage,  # noqa: ARG002
        artifacts: Sequence[Attached],  # noqa: ARG002
        *,
        required: bool = False,  # noqa: ARG002
    ) -> None:
        """Attach artifacts, such as the build record.  Idempotent.

        Warns where that fails, and raises if it is `required`.
        """
        return

    @property
    def repository(self) -> str:
        """Return `HOST/REPOSITORY` of a registry; "" elsewhere."""
        return ""

    def keep_beside(self, name: str, data: bytes) -> None:  # noqa: ARG002
        """Keep a document beside a tree of files, under the tree's name with `name` behind it."""
        return

    def keep_claims(self, image: SealedImage, claims: Sequence[Claim]) -> None:  # noqa: ARG002
        """Attach proof of what the image's layers hold. Warns where that does not work."""
        return

    @property
    def keeps_claims(self) -> bool:
        """Return whether `keep_claims` does something."""
        return False

    @property
    def keeps_index(self) -> bool:
        """Return whether it names an image's forms together, by an index; else the plain one."""
        return False

    @property
    def bytes_sent(self) -> int:
        """Return the bytes sent so far, over a network or to an engine."""
        return 0

    @property
    def mounted(self) -> Collection[str]:
        """Return the digests of blobs that a registry took over from another repository."""
        return ()

    @property
    def record_path(self) -> Path | None:
        """Return the build record's file beside the image; None where there is no such place."""
        return None

    @property
    def tree_digests(self) -> Mapping[str, str] | None:
        """Return the sha256 of a tree's files by path, once all layers have passed.

        None where an image is kept; the writers of a tree take layers uncompressed, and those that
        are files by themselves.
        """
        return None


Wanted = TypeVar("Wanted", contravariant=True)  # a platform's own options, a frozen dataclass


class Deployer(Protocol[Wanted]):
    """Describes a deployment in the documents of one platform. Pure: sends no request."""

    name: str

    def check(self, deployment: Deployment, wanted: Wanted) -> Iterable[Finding]:
        """Yield findings for what the platform would refuse, kill or ignore."""
        ...

    def render(self, deployment: Deployment, wanted: Wanted) -> RenderedFiles:
        """Return the platform's files, read back and compared. Equal arguments give equal bytes.

        `findings` has those of `check`; no credential is in any file.
        """
        ...


LiveWanted = TypeVar("LiveWanted", contravariant=True)


@runtime_checkable
class DeploysLive(Protocol[LiveWanted]):
    """A deployer that can reach its platform.  It is connected when it is first used."""

    def diff(self, deployment: Deployment, wanted: LiveWanted) -> tuple[Change, ...]:
        """Return what `apply` would do, without doing it."""
        ...

    def apply(self, deployment: Deployment, wanted: LiveWanted) -> Applied:
        """Create or update what differs.  Idempotent: after a kill, calling again goes on."""
        ...

    def status(self, name: str, *, wait_s: float = 0.0) -> DeployStatus:
        """Return the state of a deployment, after waiting so long for it to settle."""
        ...

    def invoke(self, name: str, body: bytes) -> bytes:
        """Send one request, JSON as OpenAI's or the engine's, and return its answer or raise."""
        ...

    def delete(self, name: str) -> tuple[Change, ...]:
        """Delete what `apply` made under this name, and nothing else.  Idempotent."""
        ...
