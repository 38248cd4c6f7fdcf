"""Terms of the speed model: what a step and a prompt ask of a device, before any coefficient.

A time is a sum of terms, each times a coefficient that is not negative and was fitted to
measurements (`speed_table`).  Terms that a data sheet can express are seconds at its figures, so
that their coefficients are near 1; the others are counts, and their coefficients are seconds.

    TPOT = step + what the prompts of other requests take of it

    dense_weights     bytes that every step reads / (devices x bandwidth)
    expert_weights    bytes of the experts that some token reaches / (devices x bandwidth)
    cache             sequences x bytes of K and V that a token looks back at / bandwidth
    arithmetic        2 x active parameters x tokens / (devices x peak)
    tokens            what a layer reads and writes of each token besides weights and cache
    layer, mla_layer  layers: launching kernels; more of them where attention keeps a latent
    sparse_layer      the same where attention first chooses the tokens that it looks at
    expert_calls      layers x experts of a token: routing
    joined_layer      layers on several devices: waiting for the slowest
    exchange          2 all-reduces a layer, as measured (`exchange`); of ranks 1 more
    sequence          sequences: scheduler, sampling, answers
    prompt_*          the same of a prompt, for each answer token of every other sequence;
                      attention compares every token of the prompt with those before it
"""

from __future__ import annotations

from packager.estimate.performance.devices import DeviceFigures
from packager.estimate.performance.exchange import exchange_s
from packager.estimate.performance.served import (
    ServedModel,
    Setup,
    active_parameters,
    peak_flops,
    reached_share,
)

STEP_TERMS = (
    "dense_weights",
    "expert_weights",
    "cache",
    "arithmetic",
    "tokens",
    "layer",
    "mla_layer",
    "sparse_layer",
    "expert_calls",
    "joined_layer",
    "exchange",
    "sequence",
)
PASSES_BYTES = 8  # of a value of the hidden state: read and written twice, in 2 bytes
PROMPT_TERMS = ("prompt_arithmetic", "prompt_attention", "prompt_layer", "prompt_exchange")

# Which figure of a device a term is divided by; the other terms are counts or measured times.
BY_BANDWIDTH = frozenset({"dense_weights", "expert_weights", "cache", "tokens"})
BY_PEAK = frozenset({"arithmetic", "prompt_arithmetic"})
BY_PEAK_OF_16_BITS = frozenset({"prompt_attention"})


def figure_of(term: str, device: DeviceFigures) -> float:
    """Return the figure of a device that a term is divided by; 1.0 of counts and measured times."""
    if term in BY_BANDWIDTH:
        return device.bandwidth
    if term in BY_PEAK:
        return device.peak
    return device.peak_of_16_bits if term in BY_PEAK_OF_16_BITS else 1.0


def step_terms(setup: Setup, batch: float, cached_tokens: float) -> tuple[float, ...]:
    """Return the terms of one step of `batch` sequences on one server, in the order of the names.

    With a draft every sequence has its proposed tokens and one more.
    """
    model, devices, tp = setup.model, setup.accelerator, setup.tp_degree
    bandwidth = devices.bandwidth_bytes_s
    own = batch / setup.dp_degree  # sequences of one rank
    proposed = 1 + setup.draft.speculative_tokens if setup.draft else 1
    tokens = batch * proposed
    experts_bytes = model.weight_bytes * model.expert_share
    peak = peak_flops(devices, model.scheme)
    looked_at = looked_at_tokens(model, cached_tokens)
    sequence_bytes = (model.kv_bytes_per_token * looked_at + 2 * model.state_bytes) / tp
    return (
        (model.weight_bytes - experts_bytes) / (tp * bandwidth),
        experts_bytes * reached_share(model, tokens) / (tp * setup.dp_degree * bandwidth),
        own * sequence_bytes / bandwidth,
        _flops(setup, own * proposed, tokens) / (tp * peak),
        own * proposed * model.layers * PASSES_BYTES * model.hidden_size / bandwidth,
        float(model.layers),
        float(model.layers if model.latent else 0),
        float(model.layers if model.latent and model.window_tokens else 0),
        float(model.layers * model.experts_per_token),
        float(model.layers if tp > 1 else 0),
        _exchanges_s(setup, own * proposed),
        own,
    )


def prompt_terms(setup: Setup, input_tokens: int) -> tuple[float, ...]:
    """Return the terms of one prompt on every rank, in the order of `PROMPT_TERMS`."""
    model, devices, tp = setup.model, setup.accelerator, setup.tp_degree
    layers = model.cached_layers or model.layers
    size = model.attention_size or model.hidden_size
    compared = input_tokens * looked_at_tokens(model, input_tokens / 2)
    of_weights = peak_flops(devices, model.scheme)
    peak = peak_flops(devices, "") or of_weights
    return (
        _flops(setup, input_tokens, setup.dp_degree * input_tokens) / (tp * of_weights),
        4 * layers * size * compared / (tp * peak),
        float(model.layers),
        _exchanges_s(setup, input_tokens),
    )


def picture_terms(setup: Setup, tokens: int, pictures: int) -> float:
    """Return the time of the arithmetic of a request's pictures in 16 bits, at the devices' peak.

    A device of a split has a part of the tower, or a part of the pictures.
    """
    model, devices = setup.model, setup.accelerator
    patches = tokens * model.tower_patches
    peak = peak_flops(devices, "") or peak_flops(devices, model.scheme)
    if not (patches and pictures and peak):
        return 0.0
    compared = 4 * model.tower_attention * patches * (patches / pictures)
    return (2 * model.tower_parameters * patches + compared) / (setup.tp_degree * peak)


def looked_at_tokens(model: ServedModel, tokens: float) -> float:
    """Return how many of `tokens` earlier tokens a layer reads in the mean, windows counted."""
    if not model.window_tokens:
        return tokens
    inside = min(tokens, float(model.window_tokens))
    return (1 - model.window_share) * tokens + model.window_share * inside


def _exchanges_s(setup: Setup, own: float) -> float:
    """Return the time of a step's all-reduces, `own` tokens on each rank.

    Ranks that share experts gather the tokens of all and scatter the results, once a layer.
    """
    model, devices, tp = setup.model, setup.accelerator, setup.tp_degree
    size = own * model.hidden_size
    layer_s = 2 * exchange_s(devices, tp, size)
    if setup.dp_degree > 1:
        layer_s += exchange_s(devices, tp * setup.dp_degree, setup.dp_degree * size)
    return model.layers * layer_s


def _flops(setup: Setup, own: float, tokens: float) -> float:
    """Return the operations of one rank: its own tokens in attention, its part of the experts."""
    model = setup.model
    active = active_parameters(model)
    if setup.dp_degree == 1:
        return 2 * active * own
    experts = min(active, model.parameters * model.expert_share) * (
        model.experts_per_token / model.experts if model.experts else 0.0
    )
    return 2 * ((active - experts) * own + experts * tokens / setup.dp_degree)
