"""How far off each predicted figure may be, and what that rests on.

A band is never narrower than what it rests on: errors on unseen curves where the very model was
measured, on unseen models of the engine where it was not, and on published servers with such
devices where the device was not.  Figures without any measurement have assumed bands (`*_BAND`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log2
from types import MappingProxyType

from packager.core.engine_rows import engine_name, engine_row
from packager.core.workload import Workload
from packager.estimate.performance.exchange import is_measured
from packager.estimate.performance.published import Correction, published_table
from packager.estimate.performance.served import Setup, precision_of
from packager.estimate.performance.setup_tables import (
    cell_of,
    correction_of,
    engine_of,
    first_token_known,
    is_in,
    is_other_version,
    kind_of,
    reversed_orders,
    stand_in,
)
from packager.estimate.performance.speed_table import (
    Cell,
    Errors,
    Kind,
    measured_engines,
    speed_table,
)

# Smallest relative errors of figures without measurements.
UNMEASURED_BAND = 0.6  # the engine; a device of whose kind few models were published
OTHER_KIND_BAND = 0.8  # a kind of device without measurements
# The architecture: the one published server of such a model, Llama-3.2-90B with layers that look
# at images, takes 2.2 times as long as predicted.
UNKNOWN_BAND = 1.25
ASSUMED_BAND = 0.4  # how many tokens a draft yields
# LoRA adapters: published servers lost a third (vllm#11267: 11.45 to 7.60 requests/s) to a half
# (vllm#10062) of their throughput with any; none was measured here.
ADAPTED_BAND = 1.0
FEW_MODELS = 3  # fewer published servers say nothing about other devices
MOST_SHOWN = 4.0  # a time to first token that may be longer by more is not shown

# Below this, a step takes less than the engine needs between two: the smallest measured was 8B.
SMALL_BYTES = 1_000_000_000

KIND_NAMES: Mapping[Kind, str] = MappingProxyType(
    {"dense": "dense models", "moe": "mixtures of experts"}
)
PRECISION_NAMES = {
    "bf16": "16 bits",
    "fp8": "FP8",
    "int8": "INT8",
    "fp4": "4-bit floats",
    "unpacked": "weights that are unpacked before each use",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Relative error band of a figure, and what it is based on."""

    share: float  # relative: 0.2 is ±20 %
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """The band of each predicted figure; None where the figure must not be shown."""

    tpot: Band
    throughput: Band
    ttft: Band | None = None


def bands_of(setup: Setup, workload: Workload | None = None, concurrency: int = 1) -> Bands:
    """Return how far off each figure may be, before anything was measured on the set-up itself.

    With a workload and requests at once, the band is wider where those lie beyond what was
    measured.
    """
    errors, source = _seen(setup)
    least = _least(setup)
    if least:
        errors = errors.at_least(_both(least))
        source += "; widened for what was never measured"
    for one in reversed_orders(setup):
        errors = errors.at_least(one.errors)
    wider = 1.0
    if workload:
        every = speed_table().of_engine(engine_of(setup), kind_of(setup))
        wider = _beyond(cell_of(setup) or every, setup, workload, concurrency)
        if wider > 1:
            errors = errors.times(wider)
            source += "; widened beyond the measured requests"
    return Bands(
        tpot=Band(share=errors.tpot, source=source),
        throughput=Band(share=errors.throughput, source=source),
        ttft=_first_token_band(setup, least, wider),
    )


def _seen(setup: Setup) -> tuple[Errors, str]:
    """Return the errors of such set-ups that were measured, and which those are."""
    cell, corrected = cell_of(setup), correction_of(setup)
    every = speed_table().of_engine(engine_of(setup), kind_of(setup))
    names = KIND_NAMES[every.kind]
    source = f"9 of 10 points of {names} that were left out ({every.points:,})"
    if cell is None:
        errors = every.errors.at_least(_on_other_devices(setup))
        source = (
            f"9 of 10 points of {names} that were left out, on other devices ({every.points:,})"
        )
    elif not is_in(cell, setup) or setup.dp_degree > 1:
        errors = cell.errors.at_least(every.errors)
    else:
        errors = cell.errors
        where = f"{engine_name(cell.engine)} on {cell.device}"
        source = f"9 of 10 unseen points of {names} with {where} ({cell.points:,})"
    published = corrected.spread or corrected.errors
    if published and cell and is_in(cell, setup):
        return errors.at_least(published), source
    return _corrected(errors, corrected, names) if corrected.errors else (errors, source)


def _corrected(errors: Errors, correction: Correction, names: str) -> tuple[Errors, str]:
    """Return the errors that published servers show, and which those are."""
    assert correction.errors
    if correction.is_here:  # the very model on this device: curves of others prove no less
        return correction.errors, f"published points of the model, {_sources(correction)}"
    widest = errors.at_least(correction.errors)
    if correction.own:
        return widest, f"published points on other devices, {_sources(correction)}"
    shown = f"9 of 10 published points of {names} that were left out ({correction.models} models)"
    return widest, shown


def _sources(correction: Correction) -> str:
    return ", ".join(sorted({one.source.partition(" ")[0] for one in correction.own}))


def _least(setup: Setup) -> float:
    """Return the smallest relative error of a figure without measurements."""
    cell, model, least = cell_of(setup), setup.model, 0.0
    if not correction_of(setup).is_here or (cell and is_in(cell, setup)):
        if cell is None:
            least = 0.0 if _tells_of_devices(setup) else UNMEASURED_BAND
        elif is_other_version(cell, setup):
            least = speed_table().drift
        if setup.engine and setup.engine not in measured_engines():
            least = UNMEASURED_BAND
    if setup.pp_degree > 1 or (setup.dp_degree > 1 and not engine_row(setup.engine).ranks_compared):
        least = UNMEASURED_BAND
    if setup.accelerator.kind == "neuron":
        least = OTHER_KIND_BAND
    if not model.known:
        least = UNKNOWN_BAND
    if model.weight_bytes < SMALL_BYTES:
        least = max(least, UNMEASURED_BAND)
    if setup.draft and setup.draft.source != "measured":
        least = max(least, ASSUMED_BAND)
    if setup.is_adapted:
        least = max(least, ADAPTED_BAND)
    return least


def _tells_of_devices(setup: Setup) -> bool:
    """Return whether published servers cover a device without curves, and its link."""
    row = published_table().elsewhere.get((setup.accelerator.kind, kind_of(setup)))
    has_link = setup.tp_degree == 1 or is_measured(setup.accelerator)
    is_point = row is not None and row.models >= FEW_MODELS
    return is_point and has_link and precision_of(setup) != "unpacked"


def _on_other_devices(setup: Setup) -> Errors:
    row = published_table().elsewhere.get((setup.accelerator.kind, kind_of(setup)))
    return row.errors if row and _tells_of_devices(setup) else _both(0.0)


def _both(share: float) -> Errors:
    return Errors(tpot=share, throughput=share)


def _first_token_band(setup: Setup, least: float, wider: float) -> Band | None:
    """Return the band of the time to first token; None without published servers."""
    known, model = first_token_known(setup), setup.model
    if known is None or not model.known or setup.accelerator.kind == "neuron":
        return None
    if model.weight_bytes < SMALL_BYTES:  # it waits for the engine alone
        return None
    share = wider * max(known.share, least)
    source = f"9 of 10 published first tokens of {known.models} models, each left out"
    return Band(share=share, source=source) if share <= MOST_SHOWN else None


def _beyond(cell: Cell, setup: Setup, workload: Workload, concurrency: int) -> float:
    """Return how much wider bands are beyond the largest measured batch and length."""
    growth = speed_table().beyond[cell.kind]
    batch = concurrency / (setup.replicas * setup.pp_degree)
    found = 1.0
    for wanted, most, share in (
        (batch, cell.most_sequences, growth.requests),
        (workload.tokens, cell.most_tokens, growth.tokens),
    ):
        found *= float((1 + share) ** max(0.0, log2(wanted / most)))
    return found


def error_band(setup: Setup) -> float:
    """Return the relative error of times per token, before a calibration."""
    return bands_of(setup).tpot.share


def unmeasured(setup: Setup) -> tuple[str, ...]:
    """List what the coefficients were never compared with."""
    model, cell = setup.model, cell_of(setup)
    found = [*_unmeasured_devices(setup, cell), *_unmeasured_engine(setup, cell)]
    if setup.pp_degree > 1:
        found.append("stages one after the other")
    if setup.dp_degree > 1:
        found.append("ranks that share experts, in the fit")
    if not model.known:
        found.append("this architecture, which no table has: it may be several times off")
    if model.weight_bytes < SMALL_BYTES:
        found.append("models this small, which wait for the engine")
    precision = precision_of(setup)
    if cell and not is_in(cell, setup):
        found.append(f"this model in {PRECISION_NAMES[precision]} on the {setup.accelerator.name}")
    elif cell is None and precision == "unpacked":
        found.append(PRECISION_NAMES[precision])
    return tuple(found)


def _unmeasured_devices(setup: Setup, cell: Cell | None) -> Iterator[str]:
    accelerator = setup.accelerator
    if accelerator.kind == "neuron":
        yield "Neuron devices"
    elif cell is None and not correction_of(setup).is_here:
        yield f"{KIND_NAMES[kind_of(setup)]} on the {accelerator.name}"
        if setup.tp_degree > 1 and not is_measured(accelerator):
            yield "its all-reduces, taken as those of a device with such a link"


def _unmeasured_engine(setup: Setup, cell: Cell | None) -> Iterator[str]:
    if setup.engine and setup.engine not in measured_engines():
        name = engine_name(setup.engine)
        yield f"{name}, taken as {engine_name(stand_in())}"
    elif cell and is_other_version(cell, setup):
        name, (oldest, newest) = engine_name(cell.engine), cell.versions
        measured = f"{oldest} to {newest}" if oldest != newest else oldest or "older ones"
        yield f"{name} {setup.engine_version}; the points are of {measured}"


def measured_reversed(setup: Setup) -> tuple[str, ...]:
    """Describe measurements that contradict the order of data sheets, and what becomes of them."""
    return tuple(
        f"measured so: slower than on the {one.than} at {one.slower} of {one.points} points of "
        f"this model in {PRECISION_NAMES[precision_of(setup)]}, up to {one.longest:.2f} times as "
        "long; "
        + (
            f"a step is predicted {one.step:.2f} and a prompt {one.prompt:.2f} times as long"
            if (one.step, one.prompt) != (1.0, 1.0)
            else "the prediction keeps the order of the data sheets"
        )
        for one in reversed_orders(setup)
    )
