"""Predicted speed of a plan: time per token, time to first token, tokens a second, with bands.

Times are sums of terms (`speed_terms`) with coefficients fitted to measurements of one engine on
one device (`speed_table`).  A device without measured curves is given the coefficients of all
measured ones, corrected by what its memory, arithmetic and all-reduces were measured to reach.

A band is never narrower than what it rests on: errors on unseen curves where the very model was
measured, on unseen models where it was not, and `UNMEASURED_BAND` where the device or the engine
was not.  A draft of k tokens makes a step compute k + 1 tokens per sequence and adds its own
time; the answer then grows by the acceptance length per step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import log2
from operator import mul
from types import MappingProxyType

from packager.core.traits import engine_name
from packager.core.values import dataclass
from packager.core.versions import version_key
from packager.core.workload import WORKLOADS as WORKLOADS
from packager.core.workload import Workload as Workload
from packager.performance.device_coefficients import Coefficients, coefficients_between
from packager.performance.devices import figures_of
from packager.performance.exchange import exchange_s, is_measured
from packager.performance.published import (
    Asked,
    Correction,
    correction_for,
    correction_sentence,
)
from packager.performance.scale import UNSCALED, Fit, Scale
from packager.performance.served import ACCEPTANCE as ACCEPTANCE
from packager.performance.served import WEIGHTS_ONLY as WEIGHTS_ONLY
from packager.performance.served import ServedDraft as ServedDraft
from packager.performance.served import ServedModel as ServedModel
from packager.performance.served import Setup as Setup
from packager.performance.served import concurrencies_of as concurrencies_of
from packager.performance.served import (
    peak_flops,
    precision_of,
    reached_share,
)
from packager.performance.served import running_copies as running_copies
from packager.performance.served import served_draft as served_draft
from packager.performance.served import setup_of as setup_of
from packager.performance.speed_table import (
    Cell,
    Errors,
    Form,
    Kind,
    ModelFactors,
    measured_engines,
    speed_table,
)
from packager.performance.speed_terms import (
    STEP_TERMS,
    first_terms,
    prompt_terms,
    step_terms,
)

# Relative errors that are promised at least, where nothing of the kind was measured.
UNMEASURED_BAND = 0.6  # the device, the engine
OTHER_KIND_BAND = 0.8  # a kind of device of which nothing was
# The architecture: the one published server of such a model, Llama-3.2-90B with layers that look
# at images, takes 2.2 times as long as predicted.
UNKNOWN_BAND = 1.25
ASSUMED_BAND = 0.4  # how many tokens a draft yields
# Times as long, since stages wait for each other; ours.  Llama-3.3-70B in one and two stages of
# TensorRT-LLM on RTX PRO 6000, full servers, tells 1.01 to 1.13: no other engine or link is known.
PIPELINE_SLACK = 1.25
BEYOND_BAND = 0.25  # for each doubling beyond what was measured; ours
MOST_SHOWN = 4.0  # a time to first token that may be longer by more is not shown

# Below this, a step takes less than the engine needs between two: the smallest measured was 8B.
SMALL_BYTES = 1_000_000_000

CURVES_OF = "nvidia"  # the vendor of all devices with curves
STAND_IN = "vllm"  # for engines that nobody measured
COMPARED_RANKS = "vllm"  # whose ranks that share experts were compared, and not fitted
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

_MEMORY = slice(0, STEP_TERMS.index("arithmetic") + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The instance at one concurrency, all its copies together."""

    concurrency: int
    prefill_s: float  # time to first token without queueing
    tpot_s: float  # time per output token of one request
    step_s: float  # between chunks: more than one token each, with a draft
    latency_s: float  # of a whole request
    output_tokens_s: float
    input_tokens_s: float
    ttft_s: float = 0.0  # time to first token behind the other requests; 0.0: not predicted

    @property
    def first_token_s(self) -> float:
        """Time to first token, behind the other requests where that is predicted."""
        return self.ttft_s or self.prefill_s

    @property
    def output_tokens_s_user(self) -> float:
        """Return the output tokens per second of one reader."""
        return 1 / self.tpot_s


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Points by concurrency, how far off they may be, and what they assume."""

    workload: Workload
    points: tuple[Point, ...]
    band: float  # of the time per output token, relative: 0.2 is ±20 %
    assumptions: tuple[str, ...] = ()
    bands: Bands | None = None  # by figure
    fit: Fit | None = None  # to what a user measured

    @property
    def widest(self) -> float:
        """Return the band that holds for times per token, tokens a second and prices alike."""
        return max(self.band, self.bands.throughput.share) if self.bands else self.band

    def band_at(self, concurrency: int) -> float:
        """Return the band of the time per token at one concurrency."""
        return self.fit.band_at(concurrency) if self.fit else self.band


def predict(
    setup: Setup,
    workload: Workload,
    concurrencies: Iterable[int],
    scale: Scale = UNSCALED,
) -> Prediction | None:
    """Predict every concurrency; return None where the device's figures are not published."""
    if not can_predict(setup):
        return None
    assumptions = tuple(filter(None, (correction_sentence(correction_of(setup)),)))
    assumptions += tuple(f"never measured: {words}" for words in unmeasured(setup))
    if setup.draft:
        source = setup.draft.source or "as given"
        assumptions += (f"{setup.draft.acceptance_length:g} tokens a step: {source}",)
    points = tuple(
        predict_point(setup, workload, concurrency, scale=scale) for concurrency in concurrencies
    )
    bands = bands_of(setup, workload, max((point.concurrency for point in points), default=1))
    return Prediction(
        workload=workload,
        points=points,
        band=bands.tpot.share,
        assumptions=assumptions,
        bands=bands,
    )


def predict_point(
    setup: Setup,
    workload: Workload,
    concurrency: float,
    *,
    scale: Scale = UNSCALED,
    model: ModelFactors | None = None,
) -> Point:
    """Predict one concurrency. Requests are spread evenly over the copies.

    `model` has the factors of its times; by default what curves and published speeds tell.
    """
    known, model = coefficients_of(setup), model or factors_of(setup)
    input_tokens, output_tokens = workload.input_tokens, workload.output_tokens
    batch = max(1.0, concurrency / (setup.replicas * setup.pp_degree))
    asked = prompt_terms(setup, input_tokens)
    cached_tokens = input_tokens + output_tokens / 2
    step_s = _scaled(known.step, step_terms(setup, batch, cached_tokens), scale)
    yielded = 1.0
    if setup.draft:
        yielded = setup.draft.acceptance_length
        step_s += scale.memory * draft_s(setup, setup.draft, batch)
    prompt_s = scale.prefill * sum(map(mul, known.prompt, asked))
    others = max(0.0, batch / setup.dp_degree - 1)  # on the same rank
    tpot_s = model.tpot * (step_s / yielded + others * prompt_s / output_tokens)
    if setup.pp_degree > 1:
        tpot_s *= PIPELINE_SLACK
    alone = first_terms(setup, asked, 1)
    prefill_s = model.ttft * scale.prefill * sum(map(mul, known.first, alone))
    # A prompt that comes waits for the step that runs; one in a full server also shares its own.
    ttft_s = prefill_s + (tpot_s * yielded if batch > 1 else 0.0)
    latency_s = ttft_s + max(0, output_tokens - 1) * tpot_s
    requests_s = concurrency / latency_s
    return Point(
        concurrency=round(concurrency),
        prefill_s=prefill_s,
        tpot_s=tpot_s,
        step_s=tpot_s * yielded,
        latency_s=latency_s,
        output_tokens_s=requests_s * output_tokens,
        input_tokens_s=requests_s * input_tokens,
        ttft_s=ttft_s,
    )


def can_predict(setup: Setup) -> bool:
    """Return whether bandwidth and peaks, of the weights and of 16 bits, are known."""
    devices = setup.accelerator
    peaks = (peak_flops(devices, scheme) for scheme in (setup.model.scheme, ""))
    return devices.bandwidth_bytes_s > 0 and all(peak > 0 for peak in peaks)


def bands_of(setup: Setup, workload: Workload | None = None, concurrency: int = 1) -> Bands:
    """Return how far off each figure may be, before anything was measured on the set-up itself.

    With a workload and requests at once, the band is wider where those lie beyond what was
    measured.
    """
    cell, model, corrected = _cell_of(setup), setup.model, correction_of(setup)
    every = speed_table().of_engine(_engine_of(setup), kind_of(setup))
    names = KIND_NAMES[every.kind]
    source = f"9 of 10 points of {names} that were left out ({every.points:,})"
    least = 0.0
    if cell is None:
        errors, least = every.errors, UNMEASURED_BAND
        source = (
            f"9 of 10 points of {names} that were left out, on other devices ({every.points:,})"
        )
    elif not _is_in(cell, setup) or setup.dp_degree > 1:
        errors = cell.errors.at_least(speed_table().cells["", "", every.kind].errors)
    else:
        errors = cell.errors
        where = f"{engine_name(cell.engine)} on {cell.device}"
        source = f"9 of 10 unseen points of {names} with {where} ({cell.points:,})"
    if cell and _is_other_version(cell, setup):
        least = speed_table().drift
    if setup.engine and setup.engine not in measured_engines():
        least = UNMEASURED_BAND
    published = corrected.spread or corrected.errors
    if published and cell and _is_in(cell, setup):
        errors = errors.at_least(published)
    elif corrected.errors:
        errors, least, source = _corrected(errors, least, corrected, names)
    if setup.pp_degree > 1 or (setup.dp_degree > 1 and setup.engine != COMPARED_RANKS):
        least = UNMEASURED_BAND
    if setup.accelerator.kind == "neuron":
        least = OTHER_KIND_BAND
    if not model.known:
        least = UNKNOWN_BAND
    if model.weight_bytes < SMALL_BYTES:
        least = max(least, UNMEASURED_BAND)
    if setup.draft and setup.draft.source != "measured":
        least = max(least, ASSUMED_BAND)
    if least:
        errors = errors.at_least(Errors(tpot=least, ttft=least, throughput=least))
        source += "; widened for what was never measured"
    if workload and (doublings := _doublings_beyond(cell or every, setup, workload, concurrency)):
        errors = errors.times((1 + BEYOND_BAND) ** doublings)
        source += "; widened beyond the measured requests"
    shown = errors.ttft <= MOST_SHOWN
    return Bands(
        tpot=Band(share=errors.tpot, source=source),
        throughput=Band(share=errors.throughput, source=source),
        ttft=Band(share=errors.ttft, source=source) if shown else None,
    )


def _corrected(
    errors: Errors, least: float, correction: Correction, names: str
) -> tuple[Errors, float, str]:
    """Return the errors that published servers show, the least band, and what both rest on."""
    assert correction.errors
    if correction.is_here:  # the very model on this device: curves of others prove no less
        found = replace(correction.errors, ttft=max(errors.ttft, least))
        return found, 0.0, f"published points of the model, {_sources(correction)}"
    widest = errors.at_least(correction.errors)
    if correction.own:
        return widest, least, f"published points on other devices, {_sources(correction)}"
    shown = f"9 of 10 published points of {names} that were left out ({correction.models} models)"
    return widest, least, shown


def _sources(correction: Correction) -> str:
    return ", ".join(sorted({one.source.partition(" ")[0] for one in correction.own}))


def _doublings_beyond(cell: Cell, setup: Setup, workload: Workload, concurrency: int) -> float:
    """Return how often the largest measured batch and length double up to those of a plan."""
    batch = concurrency / (setup.replicas * setup.pp_degree)
    pairs = ((batch, cell.most_sequences), (workload.tokens, cell.most_tokens))
    return sum(max(0.0, log2(wanted / most)) for wanted, most in pairs)


def error_band(setup: Setup) -> float:
    """Return the relative error of times per token, before a calibration."""
    return bands_of(setup).tpot.share


def unmeasured(setup: Setup) -> tuple[str, ...]:
    """List what the coefficients were never compared with."""
    accelerator, model, cell = setup.accelerator, setup.model, _cell_of(setup)
    found = []
    if accelerator.kind == "neuron":
        found.append("Neuron devices")
    elif cell is None and not correction_of(setup).is_here:
        found.append(f"{KIND_NAMES[kind_of(setup)]} on the {accelerator.name}")
        if setup.tp_degree > 1 and not is_measured(accelerator):
            found.append("its all-reduces, taken as those of a device with such a link")
    if setup.engine and setup.engine not in measured_engines():
        name = engine_name(setup.engine)
        found.append(f"{name}, taken as {engine_name(STAND_IN)}")
    elif cell and _is_other_version(cell, setup):
        name, (oldest, newest) = engine_name(cell.engine), cell.versions
        measured = f"{oldest} to {newest}" if oldest != newest else oldest or "older ones"
        found.append(f"{name} {setup.engine_version}; the points are of {measured}")
    if setup.pp_degree > 1:
        found.append("stages one after the other")
    if setup.dp_degree > 1:
        found.append("ranks that share experts, in the fit")
    if not model.known:
        found.append("this architecture, which no table has: it may be several times off")
    if model.weight_bytes < SMALL_BYTES:
        found.append("models this small, which wait for the engine")
    precision = precision_of(setup)
    if cell and not _is_in(cell, setup):
        found.append(f"this model in {PRECISION_NAMES[precision]} on the {accelerator.name}")
    elif cell is None and precision == "unpacked":
        found.append(PRECISION_NAMES[precision])
    return tuple(found)


def kind_of(setup: Setup) -> Kind:
    """Return which row of coefficients a model belongs to."""
    return "moe" if setup.model.experts else "dense"


def coefficients_of(setup: Setup) -> Coefficients:
    """Return the coefficients of an engine on a device, measured or between measured ones."""
    cell = _cell_of(setup)
    if cell:
        return Coefficients(cell.step, cell.prompt, cell.first)
    scheme, degree = setup.model.scheme, min(setup.tp_degree, 2)
    device = figures_of(setup.accelerator, scheme, degree)
    place = (_engine_of(setup), kind_of(setup), setup.accelerator.name)
    return coefficients_between(*place, device, scheme, degree)


def curve_factors(setup: Setup) -> ModelFactors:
    """Return what the times of the very model are multiplied by, as its curves tell; else 1."""
    return speed_table().models.get((setup.engine or STAND_IN, form_of(setup)), ModelFactors())


def factors_of(setup: Setup) -> ModelFactors:
    """Return what times are multiplied by, as curves of the model and published speeds tell."""
    found = curve_factors(setup)
    return replace(found, tpot=found.tpot * correction_of(setup).times)


def correction_of(setup: Setup) -> Correction:
    """Return how published speeds correct the times of a set-up."""
    form, vendor = form_of(setup), setup.accelerator.kind
    asked = Asked(
        engine=setup.engine,
        kind=kind_of(setup),
        vendor=vendor,
        form=form,
        latent=setup.model.latent,
        has_curves=vendor == CURVES_OF and (setup.engine, form) in speed_table().models,
    )
    layout = (setup.tp_degree, setup.expert_parallel, setup.model.scheme)
    return correction_for(asked, setup.accelerator.name, layout)


def form_of(setup: Setup) -> Form:
    """Return what a model is recognised by."""
    return (setup.model.hidden_size, setup.model.layers, setup.model.experts)


def draft_s(setup: Setup, draft: ServedDraft, batch: float) -> float:
    """Return what proposing takes of one step."""
    step = coefficients_of(setup).step
    idle = setup.model.expert_share * (1 - reached_share(setup.model, batch))
    read_bytes = draft.weight_bytes * (1 - idle if draft.has_experts else 1)
    bandwidth = setup.tp_degree * setup.accelerator.bandwidth_bytes_s
    once_s = step[STEP_TERMS.index("dense_weights")] * read_bytes / bandwidth
    once_s += step[STEP_TERMS.index("layer")] * draft.layers
    elements = batch * setup.model.hidden_size
    exchanged_s = exchange_s(setup.accelerator, setup.tp_degree, elements)
    once_s += step[STEP_TERMS.index("exchange")] * 2 * draft.layers * exchanged_s
    return once_s * (draft.speculative_tokens if draft.in_turn else 1)


def _scaled(coefficients: tuple[float, ...], terms: tuple[float, ...], scale: Scale) -> float:
    whole: float = sum(map(mul, coefficients, terms))
    if scale is UNSCALED:
        return whole
    memory: float = sum(map(mul, coefficients[_MEMORY], terms[_MEMORY]))
    return scale.memory * memory + scale.overhead * (whole - memory)


def _engine_of(setup: Setup) -> str:
    return setup.engine if setup.engine in measured_engines() else STAND_IN


def _cell_of(setup: Setup) -> Cell | None:
    return speed_table().cells.get((_engine_of(setup), setup.accelerator.name, kind_of(setup)))


def _is_in(cell: Cell, setup: Setup) -> bool:
    """Return whether the very model was measured, in such arithmetic."""
    return (form_of(setup), precision_of(setup)) in cell.forms


def _is_other_version(cell: Cell, setup: Setup) -> bool:
    """Return whether the engine's version lies outside those that a cell was measured with."""
    if setup.engine not in measured_engines() or not setup.engine_version:
        return False
    version, oldest, newest = map(version_key, (setup.engine_version, *cell.versions))
    return version is None or not (oldest and newest and oldest <= version <= newest)
