"""Predicted cold starts: from a node without the image to the first token.

    pull       bytes / what the node gets over its connections        `images.pull_hints`
    unpack     what unpacking and the disk take beyond that           the same
    container  creating and starting it                               `data/startup.toml`
    import     launcher, interpreter, libraries, configuration        the same
    weights    bytes / the slower of the disk and the engine
    compile    compiling, capturing graphs, the cache of keys and values
    ready      from an initialised engine to its first answer
    first token

Deployments wait by the same figures: `slowest_start_s` and `s3_bytes_s` are theirs, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from packager.core.instance import DeviceKind, Instance
from packager.core.plan import Plan
from packager.core.share import read_shipped
from packager.core.startup import (
    OF_THE_NODE,
    Basis,
    PhaseName,
    PredictedPhase,
    PredictedStart,
    StartedVariant,
    StartupPrediction,
)
from packager.core.units import GIB, decimal
from packager.estimate.performance.startup_advice import ImageTraits, advise
from packager.images.pull_hints import DISKS, Disk, Packed, PulledLayer, pull_parts

DATA = Path(__file__).parent / "data" / "startup.toml"

BANDWIDTH_BYTES_S = 1_250_000_000.0  # 10 Gbit/s, of instances that do not say what they always have
LARGEST_LAYER = 4 * GIB  # of weights, where the layers are not counted
_BASE_LAYERS = 3  # that take the time, of an engine's image: a guess
_LONGEST_S = 7 * 24 * 3600.0
_ENGINE_PHASES: tuple[PhaseName, ...] = ("container", "import", "compile", "ready", "first_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedImage:
    """What of an image decides how fast it starts."""

    kind: DeviceKind
    engine: str
    layers: tuple[PulledLayer, ...]
    is_base_guessed: bool = False  # it is in `layers`, with an unknown size
    weights_bytes: int  # that the engine reads
    stored_bytes: int  # of the model as it is stored: what platforms wait by
    mounted: bool = False  # the weights are not in `layers`
    compiler: str = ""  # that compiled ahead of time
    eager: bool = False  # the engine compiles nothing


def image_of_plan(plan: Plan, layers: Sequence[PulledLayer] | None = None) -> StartedImage:
    """Describe a plan's image; without its layers, the base's size is a guess by its kind."""
    split, budget = plan.split, plan.budget
    asked = plan.quantization
    written = asked is not None and not asked.existing
    loaded = budget.weights_bytes * split.tp_degree * split.pp_degree
    weights = loaded if written else plan.profile.weight_bytes
    weights += budget.draft_weights_bytes * split.tp_degree
    baked = () if plan.weights == "mounted" else _weight_layers(weights)
    guessed = (*_guessed_base(plan.instance.kind), *baked)
    return StartedImage(
        kind=plan.instance.kind,
        engine=plan.container.engine,
        layers=guessed if layers is None else tuple(layers),
        is_base_guessed=layers is None,
        weights_bytes=weights,
        stored_bytes=plan.profile.weight_bytes,
        mounted=plan.weights == "mounted",
        compiler=plan.compiler,
        eager=_is_eager(plan),
    )


def predict_startup(
    image: StartedImage,
    *,
    bandwidth_bytes_s: float = BANDWIDTH_BYTES_S,
    disks: Sequence[Disk] = DISKS,
    measured: Sequence[StartedVariant] = (),
) -> StartupPrediction:
    """Return the cold starts of an image on nodes with these disks.

    What was `measured` of the same image takes the place of what does not depend on the node,
    and is a row of its own.
    """
    known = _measured_phases(measured)
    nodes = [
        _start(disk.name, _phases(image, bandwidth_bytes_s, disk, known), image) for disk in disks
    ]
    if known:
        phases = tuple(
            PredictedPhase(name=name, seconds=known[name], basis="measured", words="where it ran")
            for name in known
        )
        nodes.append(_start("as measured", phases, image))
    return StartupPrediction(
        kind=image.kind,
        bandwidth_bytes_s=bandwidth_bytes_s,
        pull_bytes=sum(layer.size for layer in image.layers),
        is_base_guessed=image.is_base_guessed,
        weights_bytes=image.weights_bytes,
        nodes=tuple(nodes),
        allowed_s=slowest_start_s(image.stored_bytes),
        notes=tuple(_notes(image)),
    )


def bandwidth_of(instance: Instance) -> float:
    """Return what an instance always gets from a registry, in bytes a second."""
    return instance.network_gbps * 1e9 / 8 if instance.network_gbps else BANDWIDTH_BYTES_S


def slowest_start_s(stored_bytes: int) -> int:
    """Return the seconds, in whole minutes, in which a server that is still silent is starting."""
    limits = _table()["limits"]
    seconds: float = limits["starting_s"] + stored_bytes / limits["disk_bytes_s"]
    return 60 * ceil(seconds / 60)


def s3_bytes_s() -> float:
    """Return at which rate a platform brings a tree of weights from S3."""
    rate: float = _table()["mounted"]["s3_bytes_s"]
    return rate


def _phases(
    image: StartedImage, bandwidth: float, disk: Disk, known: Mapping[PhaseName, float]
) -> tuple[PredictedPhase, ...]:
    row = _row(image.kind, image.engine)
    parts = pull_parts(image.layers, bandwidth, disk)
    base: Basis = "guess" if image.is_base_guessed else "source"
    found = [
        PredictedPhase(
            name="pull",
            seconds=_rounded(parts.down_s),
            basis=base,
            words=f"{decimal(sum(one.size for one in image.layers))} at {decimal(bandwidth)}/s",
        ),
        PredictedPhase(
            name="unpack",
            seconds=_rounded(parts.unpack_s),
            basis=base,
            words="each layer is written, read and written again (kserve/kserve#5852)",
        ),
        *_of_engine(row, ("container", "import"), image),
        _weights(row, image, disk),
        *_of_engine(row, ("compile", "ready", "first_token"), image),
    ]
    return tuple(
        PredictedPhase(
            name=one.name, seconds=known[one.name], basis="measured", words="of this image"
        )
        if one.name in known and one.name not in OF_THE_NODE
        else one
        for one in found
    )


def _of_engine(
    row: Mapping[str, Any], names: Iterable[PhaseName], image: StartedImage
) -> Iterator[PredictedPhase]:
    for name in names:
        key = f"{name}_s" if name != "compile" else _compile_key(image)
        yield PredictedPhase(
            name=name, seconds=row.get(key), basis=row["basis"], words=str(row["from"])
        )


def _compile_key(image: StartedImage) -> str:
    if image.compiler:
        return "compiled_s"
    return "eager_s" if image.eager else "compile_s"


def _weights(row: Mapping[str, Any], image: StartedImage, disk: Disk) -> PredictedPhase:
    """Return reading the weights: from the disk, as after a pull that memory did not keep."""
    rate = min(disk.bytes_s, float(row["weights_bytes_s"]))
    seconds = image.weights_bytes / rate
    words = f"{decimal(image.weights_bytes)} at {decimal(rate)}/s"
    if image.mounted:
        seconds += image.weights_bytes / s3_bytes_s()
        words += f", after they came from S3 at {decimal(s3_bytes_s())}/s (kserve/kserve#5852)"
    of_row: Basis = row.get("weights_basis", row["basis"])
    basis: Basis = "source" if rate == disk.bytes_s else of_row
    return PredictedPhase(name="weights", seconds=_rounded(seconds), basis=basis, words=words)


def _start(node: str, phases: Sequence[PredictedPhase], image: StartedImage) -> PredictedStart:
    known = {one.name: one.seconds for one in phases if one.seconds is not None}
    traits = ImageTraits(
        kind=image.kind, engine=image.engine, compiler=image.compiler, mounted=image.mounted
    )
    return PredictedStart(
        node=node,
        phases=tuple(phases),
        seconds=_rounded(sum(known.values())),
        next=advise(known, traits),
    )


def _measured_phases(measured: Sequence[StartedVariant]) -> dict[PhaseName, float]:
    """Return the medians of the last measurement of each phase."""
    return {
        name: spread.median
        for one in measured
        for name, spread in one.phases.items()
        if 0 <= spread.median < _LONGEST_S
    }


def _notes(image: StartedImage) -> Iterator[str]:
    if image.is_base_guessed:
        yield (
            f"nobody looked how large the base is: {decimal(_base_bytes(image.kind))} are taken "
            "for it; a build's record has its size"
        )
    if image.kind == "neuron" and not image.compiler:
        yield "graphs that are not compiled ahead of time take minutes to hours, in no sum here"


def _guessed_base(kind: DeviceKind) -> tuple[PulledLayer, ...]:
    # What is published is compressed; the base that is built here is not.
    packed: Packed = "none" if kind == "cpu" else "gzip"
    return tuple(
        PulledLayer(digest=f"base {number}", size=_base_bytes(kind) // _BASE_LAYERS, packed=packed)
        for number in range(_BASE_LAYERS)
    )


def _base_bytes(kind: DeviceKind) -> int:
    size: int = _table()["base"][kind]
    return size


def _weight_layers(size: int) -> tuple[PulledLayer, ...]:
    count = max(1, -(-size // LARGEST_LAYER))
    return tuple(
        PulledLayer(digest=f"weights {number}", size=size // count, packed="none")
        for number in range(count)
    )


def _is_eager(plan: Plan) -> bool:
    """Return whether the engine skips compiling at its start: by option, or on processors."""
    asked = {
        name.lower().replace("_", "-").strip("-"): value for name, value in plan.engine_options
    }
    if asked.get("enforce-eager", "false") == "true":
        return True
    return plan.instance.kind == "cpu" and not plan.compiler


def _row(kind: str, engine: str) -> Mapping[str, Any]:
    rows: Sequence[Mapping[str, Any]] = _table()["engine"]
    return next(row for row in rows if row["kind"] == kind and row["engine"] in (engine, "*"))


def _rounded(seconds: float) -> float:
    return round(seconds, 2)


@cache
def _table() -> Mapping[str, Any]:
    return read_shipped(DATA)
