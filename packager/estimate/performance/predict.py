"""Predicted speed of a plan: time per token, time to first token, tokens a second.

Times are sums of terms (`speed_terms`) with coefficients fitted to measurements of one engine on
one device (`speed_table`).  A device without measured curves gets the coefficients of all measured
ones, corrected by the measured speed of its memory, arithmetic and all-reduces.  How far off they
may be is in `bands`.

A first token takes what its prompt takes of the steps of others, one step, and what published
servers show beside that work: measured curves have none whose prompt did not wait for others'.
A draft of k tokens makes a step compute k + 1 tokens per sequence and adds its own time; the
answer then grows by the acceptance length per step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import mul

from packager.core.workload import WORKLOADS as WORKLOADS
from packager.core.workload import Workload as Workload
from packager.estimate.performance.bands import Band as Band
from packager.estimate.performance.bands import Bands as Bands
from packager.estimate.performance.bands import bands_of as bands_of
from packager.estimate.performance.bands import error_band as error_band
from packager.estimate.performance.bands import measured_reversed
from packager.estimate.performance.bands import unmeasured as unmeasured
from packager.estimate.performance.exchange import exchange_s
from packager.estimate.performance.published import correction_sentence
from packager.estimate.performance.scale import UNSCALED, Fit, Scale
from packager.estimate.performance.served import ACCEPTANCE as ACCEPTANCE
from packager.estimate.performance.served import WEIGHTS_ONLY as WEIGHTS_ONLY
from packager.estimate.performance.served import ServedDraft as ServedDraft
from packager.estimate.performance.served import ServedModel as ServedModel
from packager.estimate.performance.served import Setup as Setup
from packager.estimate.performance.served import concurrencies_of as concurrencies_of
from packager.estimate.performance.served import peak_flops, reached_share
from packager.estimate.performance.served import running_copies as running_copies
from packager.estimate.performance.served import served_draft as served_draft
from packager.estimate.performance.served import setup_of as setup_of
from packager.estimate.performance.setup_tables import (
    correction_of,
    curve_factor,
    factor_of,
    once_s,
    slowed_coefficients,
)
from packager.estimate.performance.speed_terms import (
    STEP_TERMS,
    picture_terms,
    prompt_terms,
    step_terms,
)

# Times as long, since stages wait for each other; ours.  Llama-3.3-70B in one and two stages of
# TensorRT-LLM on RTX PRO 6000, full servers, tells 1.01 to 1.13: no other engine or link is known.
PIPELINE_SLACK = 1.25

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
    assumptions += measured_reversed(setup)
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
    factor: float | None = None,
) -> Point:
    """Predict one concurrency. Requests are spread evenly over the copies.

    `factor` multiplies the times of the model; by default from curves and published speeds.
    """
    known = slowed_coefficients(setup)
    factor = factor_of(setup) if factor is None else factor
    if workload.texts:
        return _pooled_point(setup, workload, concurrency, scale=scale, factor=factor)
    input_tokens, output_tokens = workload.input_tokens, workload.output_tokens
    batch = max(1.0, concurrency / (setup.replicas * setup.pp_degree))
    asked = prompt_terms(setup, input_tokens)
    seen_s = picture_terms(setup, workload.picture_tokens, workload.pictures)
    asked = (asked[0] + seen_s, *asked[1:])
    cached_tokens = input_tokens + output_tokens / 2
    step_s = _scaled(known.step, step_terms(setup, batch, cached_tokens), scale)
    yielded = 1.0
    if setup.draft:
        yielded = setup.draft.acceptance_length
        step_s += scale.memory * draft_s(setup, setup.draft, batch)
    prompt_s = scale.prefill * sum(map(mul, known.prompt, asked))
    others = max(0.0, batch / setup.dp_degree - 1)  # on the same rank
    tpot_s = factor * (step_s / yielded + others * prompt_s / output_tokens)
    if setup.pp_degree > 1:
        tpot_s *= PIPELINE_SLACK
    alone_s = _scaled(known.step, step_terms(setup, 1, input_tokens), scale)
    prefill_s = curve_factor(setup) * (prompt_s + alone_s) + scale.prefill * once_s(setup)
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


def _pooled_point(
    setup: Setup, workload: Workload, concurrency: float, *, scale: Scale, factor: float
) -> Point:
    """Predict requests for vectors or scores: prompts without answers, one after the other.

    `output_tokens_s` counts texts, which such a model gives in place of tokens.
    """
    known = slowed_coefficients(setup)
    batch = max(1.0, concurrency / (setup.replicas * setup.pp_degree))
    asked = prompt_terms(setup, workload.input_tokens)
    text_s = scale.prefill * sum(map(mul, known.prompt, asked))
    step_s = _scaled(known.step, step_terms(setup, 1, 0), scale)
    latency_s = factor * (batch * workload.texts * text_s + step_s)
    requests_s = concurrency / latency_s
    return Point(
        concurrency=round(concurrency),
        prefill_s=latency_s,
        tpot_s=latency_s / workload.request_tokens,
        step_s=latency_s,
        latency_s=latency_s,
        output_tokens_s=requests_s * workload.texts,
        input_tokens_s=requests_s * workload.request_tokens,
        ttft_s=latency_s,
    )


def can_predict(setup: Setup) -> bool:
    """Return whether bandwidth and peaks, of the weights and of 16 bits, are known."""
    devices = setup.accelerator
    peaks = (peak_flops(devices, scheme) for scheme in (setup.model.scheme, ""))
    return devices.bandwidth_bytes_s > 0 and all(peak > 0 for peak in peaks)


def draft_s(setup: Setup, draft: ServedDraft, batch: float) -> float:
    """Return what proposing takes of one step."""
    step = slowed_coefficients(setup).step
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
