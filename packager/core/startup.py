"""Cold starts: the phases from an empty node to the first token, predicted or measured.

Phases follow one another.  Layers are unpacked while others still come: `pull` lasts until the
last byte has come, and `unpack` is what the image needs after that.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from packager.core.bench_setup import BenchSetup
from packager.core.strict_models import FigureDocument

SCHEMA = 1

PhaseName = Literal[
    "pull", "unpack", "container", "import", "weights", "compile", "ready", "first_token"
]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)
OF_THE_NODE: frozenset[PhaseName] = frozenset(("pull", "unpack", "weights"))  # network and disk
Basis = Literal["measured", "source", "guess"]


class PredictedPhase(FigureDocument):
    """One phase of a start that has not happened."""

    name: PhaseName
    seconds: float | None = Field(description="null: nobody knows")
    basis: Basis = Field(description="measured by us, computed from a source's figure, or guessed")
    words: str = Field(default="", description="what the seconds rest on")


class Advice(FigureDocument):
    """The phase that takes longest, and what would shorten it."""

    phase: PhaseName
    seconds: float
    share: float = Field(description="of the whole start")
    change: str = Field(description="what to change")
    why: str


class PredictedStart(FigureDocument):
    """A cold start on one kind of node."""

    node: str = Field(description="its disk, such as `gp3, 125 MiB/s`")
    phases: tuple[PredictedPhase, ...]
    seconds: float = Field(description="of all known phases")
    next: Advice | None = None

    def of(self, name: PhaseName) -> PredictedPhase | None:
        """Return one phase."""
        return next((one for one in self.phases if one.name == name), None)


class StartupPrediction(FigureDocument):
    """Cold starts of one image, by node."""

    kind: str = Field(default="", description="of the devices: nvidia, amd, neuron, cpu")
    bandwidth_bytes_s: float = Field(description="from the registry to the node")
    pull_bytes: int = Field(description="as they travel, the base with them")
    is_base_guessed: bool = Field(description="nobody looked how large the base is")
    weights_bytes: int = Field(description="that the engine reads")
    nodes: tuple[PredictedStart, ...]
    allowed_s: int = Field(description="a server that is silent for so long is starting: platforms")
    notes: tuple[str, ...] = ()


class Spread(FigureDocument):
    """A figure of several starts."""

    median: float
    low: float | None = Field(default=None, description="95 % interval of the mean; from 3 rounds")
    high: float | None = None


class OneStart(FigureDocument):
    """One container, from nothing to its first token."""

    round: int
    phases: dict[PhaseName, float] = Field(description="seconds; what nobody tells is left out")
    untold_s: float = Field(default=0.0, description="between start and ready, in no phase")
    seconds: float
    ready_s: float = Field(description="from the container's creation to its first /ping")
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    pulled_bytes: int | None = Field(default=None, description="null: it was in the engine")
    known_layers: int | None = Field(
        default=None, description="layers that were not pulled: another image has them"
    )
    compiled: str = Field(default="", description="what the launcher says of compiled files")


class StartedVariant(FigureDocument):
    """The starts of one image."""

    name: str
    setup: BenchSetup = Field(default_factory=BenchSetup)
    starts: tuple[OneStart, ...] = ()
    phases: dict[PhaseName, Spread] = Field(default_factory=dict)
    untold: Spread | None = None
    seconds: Spread | None = None
    ready: Spread | None = None
    cpu_seconds: Spread | None = None
    peak_memory_bytes: int | None = None
    predicted: StartupPrediction | None = Field(default=None, description="of its build record")
    next: Advice | None = None
    failure: str = ""


class ComparedStart(FigureDocument):
    """One phase of a variant over the first one's."""

    variant: str
    phase: str = Field(description="a phase, `seconds` of all or `cpu_seconds`")
    ratio: float
    low: float | None = None
    high: float | None = None
    is_noise: bool | None = Field(default=None, description="null with fewer than 3 rounds")


class StartupReport(FigureDocument):
    """Everything that was measured of starts."""

    schema_version: int = SCHEMA
    packager_version: str
    measured: str  # when, in UTC
    machine: str = ""
    rounds: int = 1
    startups: tuple[StartedVariant, ...]
    compared: tuple[ComparedStart, ...] = ()
    notes: tuple[str, ...] = ()
    command: str = ""
    incomplete: str = Field(default="", description="why it ended early")
