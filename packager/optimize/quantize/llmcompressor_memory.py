"""Memory and disk that a run of llm-compressor needs: docs/quantization.md, "Memory"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packager.core.plan import Plan
from packager.core.recipe import Estimate
from packager.core.samples import Samples
from packager.core.techniques import Quantization
from packager.estimate.performance.amounts import quantizing_work, texts_of
from packager.estimate.sizing.memory import ELEMENT_BYTES, served_weight_bytes
from packager.estimate.sizing.schemes import quantized_weight_bytes
from packager.optimize.quantize.llmcompressor_options import TOOL

# Memory, measured on a model of 1.1 GB: docs/quantization.md, "Memory".
_LIBRARIES_BYTES = 500_000_000  # torch, transformers and llm-compressor, loaded
_DRIVER_BYTES = 1_000_000_000  # of a GPU: CUDA itself, its libraries' kernels and work space
_SPARE = 1.1  # of weights and result
_GPU_SQUARES = 3 * 4  # of its inputs, while one matrix is solved on a GPU, in float32
_HESSIANS = 4 * 4  # square matrices of the widest input at once, in float32
_WEIGHTS_KEPT = {"awq": 1, "gptq": 1, "smoothquant": 1}  # times, besides scales
_MASKS = 2  # of attention, for each text
_FILES = 100_000_000  # small ones, and what file systems round up
_TUNED = 40  # of AutoRound, for a weight of one layer: offsets, gradients and copies in float32
# Of AWQ, while it searches scales: for a weight of one layer its copy and what is tried, and for
# one of the two widest matrices, which are tried together, products in float32.
_TRIED, _TRIED_WIDEST = 5, 14
_CACHED = {
    "awq": 12,
    "gptq": 6,
    "autoround": 12,
}  # activations of a token between two layers, in hidden sizes


def estimate_needs(
    plan: Plan, chosen: Quantization, samples: Samples | None, parameters: Mapping[str, Any]
) -> Estimate:
    """Estimate an upper bound, with all weights in memory; docs/quantization.md has measurements.

    Where there is less memory the worker keeps weights on disk, so less is needed at
    least: the libraries, the largest part of the work, and a share of the weights.
    """
    profile = plan.profile
    weights, result = served_weight_bytes(profile), quantized_weight_bytes(profile, chosen)
    fixed = _LIBRARIES_BYTES + profile.vocab_size * parameters["max_tokens"] * (ELEMENT_BYTES + 4)
    if samples is not None:
        tokens = len(samples.samples) * parameters["max_tokens"]
        fixed += tokens * profile.hidden_size * 4 * _CACHED.get(chosen.method, 6)
    if chosen.method == "autoround":
        fixed += _TUNED * profile.linear_parameters // max(1, profile.layers)
    if chosen.method == "awq":
        inner = profile.expert_size or profile.intermediate_size
        fixed += _TRIED * profile.linear_parameters // max(1, profile.layers)
        fixed += _TRIED_WIDEST * 2 * profile.hidden_size * inner
    if chosen.method == "gptq" or parameters.get("gptq"):
        fixed += _HESSIANS * max(profile.hidden_size, profile.intermediate_size) ** 2
    work = quantizing_work(
        profile,
        texts_of(samples, parameters["max_tokens"]),
        method=chosen.method,
        weight_bytes=profile.weight_bytes,
        result_bytes=result,
        hessians=bool(parameters.get("gptq")),
        iterations=parameters.get("iterations", 0),
    )
    return Estimate(
        memory_bytes=int(fixed + _SPARE * (weights + result)),
        least_memory_bytes=int(fixed + _SPARE * result),
        # A packed copy while working, and one as saved; the first is removed before the final
        # layout. Layers that are not loaded are written once, unchanged.
        disk_bytes=2 * result
        + profile.unserved_bytes
        + _kept_bytes(plan, chosen, samples, parameters)
        + _FILES,
        spilled_bytes=weights,
        work=work,
        method=f"{TOOL}/{chosen.method}",
        size_bytes=profile.weight_bytes,
    )


def _kept_bytes(
    plan: Plan, chosen: Quantization, samples: Samples | None, parameters: Mapping[str, Any]
) -> int:
    """Estimate the bytes that an interrupted run keeps: changed weights, and activations twice.

    The newest activations are written before those of the previous block are removed.
    """
    if samples is None or chosen.method == "autoround":  # which begins anew
        return 0
    profile = plan.profile
    passes = _WEIGHTS_KEPT.get(chosen.method, 0) + bool(parameters.get("gptq"))
    longest = parameters["max_tokens"]
    of_token = 2 * profile.hidden_size + _MASKS * longest + 4 * profile.head_dim
    tokens = len(samples.samples) * longest
    return int(_SPARE * (passes * served_weight_bytes(profile) + tokens * of_token * ELEMENT_BYTES))


def _solves(chosen: Quantization) -> bool:
    """Check whether GPTQ corrects the weights."""
    return chosen.method == "gptq" or ("gptq", "") in chosen.options


def gpu_bytes(plan: Plan, chosen: Quantization, tokens: int) -> int:
    """Bound the memory that one GPU needs: the work on a layer, and on the head.

    A layer needs its weights twice, plus the larger of two: the activations of one text with its
    logits, or GPTQ's matrices, which come after the texts.
    """
    profile = plan.profile
    layer = (served_weight_bytes(profile) - profile.outside_bytes) // max(1, profile.layers)
    hidden, inner = profile.hidden_size, profile.expert_size or profile.intermediate_size
    widest = max(hidden, profile.intermediate_size, inner)
    texts = tokens * (8 * hidden + 4 * widest) * 4
    texts += profile.vocab_size * (tokens * (ELEMENT_BYTES + 4) + ELEMENT_BYTES * hidden)
    solving = 0
    if chosen.method == "autoround":  # a guess: no GPU was there
        count = profile.linear_parameters // max(1, profile.layers)
        solving = _TUNED * count + 8 * texts  # 8 texts at once, with gradients
    if _solves(chosen):
        squares = 4 * hidden**2 + max(1, profile.experts) * (2 * hidden**2 + inner**2)
        solving = 4 * squares + _GPU_SQUARES * widest**2 + 2 * 4 * widest * hidden
    return int(_DRIVER_BYTES + 2 * layer + max(texts, solving))
