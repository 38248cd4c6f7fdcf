"""Effects of engine options on a plan: the longest sequence, and memory."""

from __future__ import annotations

from dataclasses import replace

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.model import ModelProfile
from packager.core.techniques import Draft, Quantization
from packager.engines.effects import Counted, engine_named
from packager.engines.lengths import LengthLimit, check_limit, length_limit
from packager.estimate.sizing.adapters import AdapterSlots, adaptable_sizes
from packager.estimate.sizing.engine_memory import adapted_multiples
from packager.estimate.sizing.kv_cache import with_state_types
from packager.estimate.sizing.memory import MemoryInputs, limit_step
from packager.estimate.sizing.precision import choose_kv_dtype
from packager.estimate.sizing.schemes import quantized_weight_bytes
from packager.models.adapters.fitting import EMBEDDING, HEAD
from packager.pipeline.planning.fit import Room, reserves, room_of


def own_options(facts: Facts) -> dict[str, str]:
    """Return the engine options of the request by the engine's own names."""
    return engine_named(facts.container, facts.request.engine_options)


def derive_limit(facts: Facts, profile: ModelProfile) -> LengthLimit:
    """Return the longest sequence that the engine takes, with those options."""
    return length_limit(
        facts.container.engine,
        facts.container.engine_version,
        facts.model.config,
        assumed_tokens=profile.max_positions,
        options=own_options(facts),
        environment=facts.environment,
    )


def check_length(facts: Facts, limit: LengthLimit) -> tuple[Finding, ...]:
    """Report a requested length beyond the engine's limit."""
    total = facts.request.max_total_tokens or 0
    return tuple(check_limit(facts.container.traits.who, limit, total, "max_total_tokens"))


def _slots_of(facts: Facts, profile: ModelProfile, counted: Counted) -> AdapterSlots | None:
    """Return what the engine keeps for adapters, by its options and the model's headers."""
    if not counted.adapter_slots:
        return None
    traits = facts.container.traits.adapters
    heads = traits.heads if traits is not None else None
    leaves: set[str] = set()
    if traits is not None and not traits.wraps_all:
        leaves = {leaf for adapter in facts.adapters for leaf in adapter.leaves}
    ends = heads is not None and profile.architecture in heads
    joined = traits is not None and profile.architecture in traits.stacked
    multiples = (1, 1)
    if traits is not None and traits.wraps_all:
        multiples = adapted_multiples(profile.weight_format)
    if leaves and not leaves.isdisjoint((*EMBEDDING, *HEAD)):
        ends = True
    return AdapterSlots(
        count=counted.adapter_slots,
        rank=counted.adapter_rank,
        sizes=adaptable_sizes(facts.model, profile, ends=ends, leaves=leaves, joined=joined),
        sharded=counted.adapter_sharded,
        multiples=multiples,
    )


def make_room(
    facts: Facts,
    profile: ModelProfile,
    counted: Counted,
    quantization: Quantization | None,
    draft: Draft | None,
) -> Room:
    """Return the inputs of memory budgets; `counted` has the options' changes to them."""
    request, instance, container = facts.request, facts.instance, facts.container
    kv_dtype = choose_kv_dtype(request.kv_dtype, quantization, instance)
    wide = request.dtype == "float32"
    demand = MemoryInputs(
        weight_bytes=quantized_weight_bytes(profile, quantization),
        kv_element_bytes=counted.cache_element_bytes or (1 if kv_dtype == "fp8" else 2 + 2 * wide),
        computes_wide=wide,
        max_prefill_tokens=request.max_prefill_tokens or counted.step_tokens or None,
        offloaded_bytes=counted.offloaded_bytes,
        eager=counted.eager,
        block_tokens=counted.block_tokens,
        prefix_caching=counted.prefix_caching,
        adapters=_slots_of(facts, profile, counted),
        draft=draft,
        engine=container.engine,
        engine_version=container.engine_version,
        usable_share=request.gpu_memory_utilization,
        reserve=reserves(instance),
    )
    typed = with_state_types(profile, counted.mixed_element_bytes, counted.recurrent_element_bytes)
    limited = replace(demand, max_prefill_tokens=limit_step(typed, instance, demand))
    return room_of(facts, typed, limited)
