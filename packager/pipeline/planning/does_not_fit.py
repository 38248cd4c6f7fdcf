"""Explanation of a model that does not fit: figures, and what helps on the same instance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from packager.core.findings import LACKS, MEMORY, NEEDED_BYTES, USABLE_BYTES, Finding
from packager.core.instance import Instance
from packager.core.model import ModelProfile
from packager.core.plan import MemoryBudget
from packager.core.shape import Shape
from packager.core.units import gib
from packager.estimate.sizing.memory import MemoryInputs, make_budget
from packager.estimate.sizing.quantizable import find_support
from packager.estimate.sizing.shape import LEAST_TOKENS

# Four bits a weight and a scale for each group of 128, with embeddings kept whole:
# Llama-3-70B has 141.1 GB in bf16 and 39.8 GB as AWQ with groups of 128.
FOUR_BIT_SHARE = 0.28

FOUR_BIT_METHODS = ("awq", "gptq", "rtn")  # the best first


def explain_misfit(
    profile: ModelProfile,
    instance: Instance,
    shape: Shape,
    budget: MemoryBudget,
    pipelined: tuple[int, MemoryInputs | None],
    quantize: str | None,
    *,
    packs_4_bits: bool,
) -> Finding:
    """Return the arithmetic of the closest miss as an error, with a way out in its hint."""
    if budget.lacking_bytes and budget.needed_bytes <= budget.usable_bytes:
        return _explain_lack(instance, shape, budget)
    pipeline = f" PP {budget.pp_degree}" if budget.pp_degree > 1 else ""
    draft_bytes = budget.draft_weights_bytes + budget.draft_kv_bytes
    draft = f", draft {gib(draft_bytes)}" if draft_bytes else ""
    message = (
        f"the model does not fit {instance.name}: for {shape.max_batch} at once of "
        f"{shape.max_total_tokens} tokens, at TP {budget.tp_degree}{pipeline}, a device needs "
        f"{gib(budget.needed_bytes)} (weights {gib(budget.weights_bytes)}, "
        f"KV cache {gib(budget.kv_bytes + budget.state_bytes)}{draft}, "
        f"activations {gib(budget.activations_bytes)}, "
        f"engine {gib(budget.overhead_bytes)}) and has {gib(budget.usable_bytes)} usable"
    )
    may_pack = packs_4_bits and not profile.quantization and quantize in (None, "none")
    hint = _way_out(profile, instance, shape, budget, pipelined, may_pack=may_pack)
    data: dict[str, int | float | str] = {
        LACKS: MEMORY,
        NEEDED_BYTES: budget.needed_bytes,
        USABLE_BYTES: budget.usable_bytes,
        "tp_degree": budget.tp_degree,
        "pp_degree": budget.pp_degree,
    }
    return Finding("error", "does-not-fit", message, hint, data)


def _explain_lack(instance: Instance, shape: Shape, budget: MemoryBudget) -> Finding:
    """Explain that the engine's memory share leaves too little for memory outside it."""
    message = (
        f"the engine may take {gib(budget.usable_bytes)} of a device of {instance.name}, and "
        f"lacks {gib(budget.lacking_bytes)} beside that for CUDA's context and graphs: it would "
        "run out of memory when it starts"
    )
    visible = budget.visible_bytes or budget.device_bytes
    share = math.floor(100 * (budget.usable_bytes - budget.lacking_bytes) / visible) / 100
    hint = f"lower gpu_memory_utilization to {share:.2f}"
    hint += ", or ask for fewer requests at once" if shape.max_batch > 1 else ""
    data: dict[str, int | float | str] = {
        LACKS: MEMORY,
        USABLE_BYTES: budget.usable_bytes,
        "lacking_bytes": budget.lacking_bytes,
    }
    return Finding("error", "does-not-fit", message, hint, data)


def _way_out(
    profile: ModelProfile,
    instance: Instance,
    shape: Shape,
    budget: MemoryBudget,
    pipelined: tuple[int, MemoryInputs | None],
    *,
    may_pack: bool,
) -> str:
    depth, demand = pipelined
    for changes, smaller in _cuts(shape, budget):
        if make_budget(profile, instance, smaller, budget.tp_degree, demand, pp_degree=depth).fits:
            return f"lower {changes}, or choose an instance with more memory"
    if demand is not None and demand.max_prefill_tokens is not None:
        unasked = replace(demand, max_prefill_tokens=None)
        if make_budget(profile, instance, shape, budget.tp_degree, unasked, pp_degree=depth).fits:
            return f"lower max_prefill_tokens {demand.max_prefill_tokens}, or leave it out"
    packed_bytes = int(budget.weights_bytes * FOUR_BIT_SHARE)
    saved_bytes = budget.weights_bytes - packed_bytes
    if may_pack and budget.needed_bytes - saved_bytes <= budget.usable_bytes:
        works = [
            m for m in FOUR_BIT_METHODS if not find_support(profile.architecture, {}, m).refused
        ]
        own = f"or `--quantize {works[0]}`, " if works else ""
        return (
            f"use a 4-bit checkpoint (about {gib(packed_bytes)} of weights per device) "
            f"{own}or an instance with more memory"
        )
    return "choose an instance with more memory, or more devices"


def _cuts(shape: Shape, budget: MemoryBudget) -> Iterator[tuple[str, Shape]]:
    """Suggest shapes that may fit: first fewer sequences, then one, shorter and shorter."""
    sequences = min(budget.count_requests(shape.max_total_tokens), shape.max_batch - 1)
    for batch in (sequences, sequences - 1):
        if batch > 0:
            yield f"max_batch to {batch}", replace(shape, max_batch=batch)
    batch = shape.max_batch // 2  # a batch of millions leaves no room for itself
    while batch > 1:
        yield f"max_batch to {batch}", replace(shape, max_batch=batch)
        batch //= 2
    total = shape.max_total_tokens // 2
    while total >= LEAST_TOKENS:
        words = f"max_batch to 1 and max_total_tokens to {total}"
        yield words, replace(shape, max_batch=1, max_total_tokens=total)
        total //= 2
