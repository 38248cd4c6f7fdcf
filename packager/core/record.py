"""The build record: enough to repeat a build exactly, and to see what it did."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from packager.core.bench import BenchReport
from packager.core.quality import QualityReport
from packager.core.reports.notebook import NotebookValue
from packager.core.request import BuildRequest, trusting_nothing
from packager.core.speculation import SpeculationReport
from packager.core.startup import StartupPrediction, StartupReport
from packager.core.strict_models import StrictDocument

RECORD_SCHEMA = 7
# 1 knows no `bench`, 2 no `trees`, 3 no `smoke`, `startup` or file systems,
# 4 no `try_untested` and no `quantize_layer` of a request, 5 no `trust_roots` and no `base_files`,
# 6 no adapters
READ_SCHEMAS = (1, 2, 3, 4, 5, 6, RECORD_SCHEMA)


class RecordedModel(StrictDocument):
    """The model as it was pinned."""

    source: str
    name: str
    revision: str = ""


class RecordedDraft(StrictDocument):
    """Draft of an image, as it was pinned. Its layers have the role `draft`."""

    kind: str
    version: str = ""  # of Medusa heads
    speculative_tokens: int
    source: str = ""  # "" for n-gram, which has no files
    name: str = ""
    revision: str = ""
    license: str = ""  # as the catalog states it


class RecordedAdapter(StrictDocument):
    """LoRA adapter of an image, as it was pinned. Its layer has the role `adapter`."""

    name: str  # that clients send
    source: str
    model: str  # its name there
    revision: str = ""
    rank: int  # the largest of its matrices
    directory: str = ""  # in the container; "" of one that is folded into the weights
    sha256: str = ""  # of its weights as they came, where the source says
    trained_on: str = ""  # the base that its own configuration names


class RecordedBase(StrictDocument):
    """The base image as it was pinned."""

    reference: str
    digest: str
    platform: str


class RecordedLayer(StrictDocument):
    """One layer of the result."""

    role: str
    digest: str
    size: int
    believed: str | None = None  # id of the key whose claim gave the digest, or `cache`: it was
    # not read
    erofs: str | None = None  # digest of the same files as a file system, in the second manifest


class RecordedImage(StrictDocument):
    """One place the image was written to."""

    target: str
    name: str
    digest: str


class RecordedTree(StrictDocument):
    """One place that the model's files were written to, without an image."""

    target: str
    name: str
    digest: str  # of its manifest, `packager-tree.json`
    files: int
    size: int  # of all files
    image: str = ""  # that serves it, as the catalog names it; "" where none is known
    env: dict[str, str] = Field(default_factory=dict)  # what that image is told
    # Place in the container → directory of the tree, "." for all of it.
    mounts: dict[str, str] = Field(default_factory=dict)


class RecordedFinding(StrictDocument):
    """Warning or note of the planner."""

    severity: str
    code: str
    message: str
    hint: str = ""


class RecordedRuntime(StrictDocument):
    """Requirements of the image on its host, for whoever deploys it."""

    cuda: str = ""  # "" where nobody says
    least_driver: str = ""  # of NVIDIA
    inference_ami: str = ""  # of SageMaker
    drain_s: int | None = None  # that running requests get after SIGTERM; None: until they end
    grace_s: int | None = None  # termination grace period; None where nobody looked
    health_path: str = ""  # answers 200 while the server serves; "" without a health check
    start_period_s: int | None = None  # in which it starts; None without a health check


class RecordedStep(StrictDocument):
    """A step of the recipe: what made its result, and whether it was there already."""

    name: str
    tool: str
    key: str = ""  # in the artifact cache
    reused: bool = False
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    versions: dict[str, str] = Field(default_factory=dict)  # really used
    details: dict[str, Any] = Field(default_factory=dict)


class RecordedSmoke(StrictDocument):
    """An answer of a deployment of the image, asked once after it was applied."""

    deployment: str  # platform and name, such as `sagemaker my-model`
    instance: str
    asked: str  # UTC, RFC 3339
    model: str = ""  # as the server names it
    seconds: float  # of the whole answer
    text: str = ""  # its beginning


class Transfer(StrictDocument):
    """Bytes read and sent by a build, without those that the kernel sends to an engine."""

    bytes_read: int = 0
    bytes_sent: int = 0
    layers_known: int = 0  # digests known beforehand: not read
    layers_streamed: int = 0


class BuildRecord(NotebookValue, StrictDocument):
    """One finished build. `digest` is what `--from-record` must reproduce."""

    schema_version: int = RECORD_SCHEMA
    packager_version: str
    request: Annotated[BuildRequest, AfterValidator(trusting_nothing)]
    model: RecordedModel
    draft: RecordedDraft | None = None
    adapters: tuple[RecordedAdapter, ...] = ()
    merged_adapter: RecordedAdapter | None = None  # that the weights hold
    base: RecordedBase
    family: str
    engine: str
    engine_version: str
    tp_degree: int
    served_name: str
    shape: dict[str, int]
    created: str
    digest: str
    # Of the manifest of plain layers, where `digest` is that of an index of two.
    plain_digest: str | None = None
    config_digest: str = ""  # Docker's id of the image
    layers: tuple[RecordedLayer, ...]
    images: tuple[RecordedImage, ...]
    trees: tuple[RecordedTree, ...] = ()  # without `images`, `digest` is theirs
    findings: tuple[RecordedFinding, ...] = ()
    steps: tuple[RecordedStep, ...] = ()
    runtime: RecordedRuntime | None = None  # None in records of 0.1
    quality: QualityReport | None = None  # None where it was not measured
    speculation: SpeculationReport | None = None  # measured later, on the image as it runs
    bench: BenchReport | None = None  # measured later, too, under load
    smoke: RecordedSmoke | None = None  # of its last deployment that was asked
    startup: StartupPrediction | None = None  # cold starts of the image, predicted
    starts: StartupReport | None = None  # the same, measured later
    transfer: Transfer
    seconds: float

    def short_words(self) -> str:
        """Return which model it is of, where it was written and by which digest."""
        places = [image.target for image in self.images] + [tree.target for tree in self.trees]
        return f"{self.served_name!r} in {', '.join(places) or 'no place'}: {self.digest}"

    @property
    def digests(self) -> tuple[str, ...]:
        """What names the image: its digest, and that of its plain manifest where it has two."""
        return tuple(filter(None, (self.digest, self.plain_digest)))
