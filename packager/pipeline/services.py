"""Services of a build; chosen in `wiring`, replaced in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from packager.core.catalog import Accelerator, Rule
from packager.core.checkpoint import QuantizedCheckpoint
from packager.core.errors import NotFound
from packager.core.facts import ContainerFacts
from packager.core.image import BaseImage, Blob, ImageSpec, Platform, SealedImage, Written
from packager.core.instance import Instance
from packager.core.measurement import MeasuredRun
from packager.core.model import ModelFile, ModelFiles, ScaleValues, WeightsHeader
from packager.core.ports import Compiler, ContainerFamily, Quantizer
from packager.core.recipe import Step
from packager.core.references import ModelReference
from packager.core.samples import Samples
from packager.core.workload import Workload
from packager.estimate.performance.effort import PastRun
from packager.images.rootfs.tree import ImageFiles
from packager.images.sbom.components import Component
from packager.optimize.drafts.published import KnownChoice
from packager.optimize.steps.services import StepServices

if TYPE_CHECKING:
    from packager.core.quality import QualityReport
    from packager.core.record import BuildRecord, Transfer
    from packager.core.training import TrainingReport


Documents = Mapping[str, bytes]  # about an image, by media type
# A published draft for a model there; drafts, as requests write them, that do not work, with why.
KnownDraftOf = Callable[[ModelFiles, Instance, ContainerFacts, Mapping[str, str]], KnownChoice]


def no_adapter(reference: ModelReference) -> ModelFiles:
    """Raise: these services read no adapters."""
    raise NotFound(f"{reference.text!r} is not read here", hint="use `packager build`")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildServices(StepServices):
    """The functions and adapters that a build uses."""

    find_instance: Callable[[str], Instance]
    # Of a family, a version and a region, each None where the request leaves it open.
    find_container: Callable[[str | None, str | None, str | None, Instance], ContainerFacts]
    find_base: Callable[[str, Platform], BaseImage]
    check_base: Callable[[BaseImage], None] = lambda _: None  # whether outputs take its layers
    read_base: Callable[[BaseImage], ImageFiles] = lambda _: ImageFiles()
    family: Callable[[str], ContainerFamily]
    known_files: Callable[[ModelFiles], ModelFiles] = lambda model: model  # with digests, unread
    # Layers of weights that were quantized in the stream: what is known of them, in place of
    # reading, and what a build tells of its own.
    find_layers: Callable[[Step, ImageSpec], ImageSpec] = lambda _, image: image
    have_layers: Callable[[ImageSpec], bool] = lambda _: False  # the outputs, all that are computed
    takes_layers: bool = True  # whether a tool's step may give way to layers that are known
    keep_layers: Callable[[Step, Written], None] = lambda _step, _: None
    find_quantizer: Callable[[str | None], Quantizer | None]
    find_compilers: Callable[[str | None], Mapping[str, Compiler]]  # that may be meant
    find_sharder: Callable[[str], Compiler | None] = lambda _: None  # for a load format
    # Texts of a source: so many, chosen by a seed; for measuring, others than the last.
    find_samples: Callable[[str, int, int], Samples]
    find_evaluation: Callable[[str, int, int, Samples | None], Samples]
    read_quality: Callable[[tuple[ModelFile, ...]], QualityReport]  # of a finished evaluation
    preflight: Callable[[], None]  # check the outputs before any work
    write: Callable[[ImageSpec], tuple[Written, Transfer]]
    save: Callable[[BuildRecord], None]
    # Attach the record, and documents by media type, to the image wherever outputs keep such
    # things; a failure is a warning, unless what failed is required.
    attach: Callable[[BuildRecord, SealedImage, Documents], None] = lambda _record, _image, _: None
    with_sbom: bool = True
    base_packages: Callable[[BaseImage], tuple[Component, ...]] = lambda _: ()  # for the SBOM
    policy: str = ""  # what provenance says of it: a digest, or that it was skipped
    # The SHA-256 of a file, or what its source states; "" where that takes reading it.
    digest_of: Callable[[Blob, str], str] = lambda _blob, stated: stated
    read_small: Callable[[ModelFile], bytes] = lambda _: b""  # a model card; empty if unreadable
    created: str  # creation time in the image, RFC 3339
    accelerator_of: Callable[[Instance], Accelerator]
    read_header: Callable[[ModelFile], WeightsHeader]  # of weights to be split, wherever they are
    known_draft: KnownDraftOf | None = None  # what `--draft auto` means
    # Instances to suggest when nothing fits; None: no suggestions, not even of another shape.
    instances: tuple[Instance, ...] | None = ()
    smaller_checkpoints: Callable[[str], tuple[QuantizedCheckpoint, ...]] = lambda _: ()
    rules: tuple[Rule, ...] = ()  # which techniques can be combined
    this_machine: Callable[[], Instance] | None = None  # where steps run; None: unknown
    past: Callable[[], tuple[PastRun, ...]] = tuple  # steps that were run, with their times
    containers: Callable[[], tuple[ContainerFacts, ...]] = lambda: ()  # that may be suggested
    read_scales: Callable[[ModelFiles], ScaleValues | None] = lambda _: None  # of packed weights
    # A model by its headers where `find_model` would download it; None elsewhere. Drafts likewise.
    peek_model: Callable[[ModelReference], ModelFiles | None] = lambda _: None
    peek_draft: Callable[[ModelReference], ModelFiles | None] = lambda _: None
    # Files of an adapter; by its headers where `find_adapter` would download it, else None.
    find_adapter: Callable[[ModelReference], ModelFiles] = no_adapter
    peek_adapter: Callable[[ModelReference], ModelFiles | None] = lambda _: None
    list_adapters: Callable[[str], Mapping[str, str]] = lambda _: {}  # of a directory, by name
    # Figures of the training of a head; None where there are none.
    read_training: Callable[[ModelFiles], TrainingReport | None] = lambda _: None
    measured: tuple[MeasuredRun, ...] = ()  # that the record's predictions are corrected by
    read_workload: Callable[[str], Workload] | None = None  # of a file of requests
    # The kinds of the outputs; `trees`: no image is written, so that no base is needed.
    outputs: Literal["images", "trees", "both"] = "images"
