"""Memory of one device, from exact header bytes and what engines are seen to take.

What an engine takes beside weights and cache is data: `engine_memory` of this package.
How it lays out the cache is `kv_cache`.  Weights are taken as split evenly;
what every device keeps whole (norms, KV projections where KV heads are fewer than devices) is
below one percent and ignored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from packager.core.instance import GPUS, Instance
from packager.core.model import ModelProfile
from packager.core.plan import KvShare, MemoryBudget
from packager.core.shape import Shape
from packager.core.split import Split
from packager.core.techniques import Draft
from packager.estimate.sizing.adapters import AdapterSlots, adapter_bytes, expert_padding
from packager.estimate.sizing.device_rules import RULES, MemoryRules, default_step
from packager.estimate.sizing.engine_memory import (
    EngineMemory,
    engine_memory,
    extra_weights,
    graph_sizes,
    image_tokens,
    keeps_every_state,
    padding_multiple,
    visible_bytes,
)
from packager.estimate.sizing.kv_cache import (
    KvLayout,
    Paging,
    is_converted_to_mha,
    kv_heads_here,
    make_layout,
    round_up,
)

__all__ = [
    "MemoryInputs",
    "is_converted_to_mha",
    "kv_heads_here",
    "limit_step",
    "make_budget",
    "served_weight_bytes",
]


ELEMENT_BYTES = 2  # weights and activations of 16 bits
LOGIT_BYTES = 6  # not of GPUs: the 16-bit logits and their 32-bit copy for the sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryInputs:
    """Memory needed beside the unmodified model: the techniques' part of a budget."""

    weight_bytes: int | None = None  # after quantization; None: as the engine loads them
    kv_element_bytes: int = 2
    max_prefill_tokens: int | None = None
    draft: Draft | None = None
    usable_share: float | None = None  # of the device, `gpu_memory_utilization`; None: the rules'
    reserve: bool = True  # KV cache of the whole batch; False: of one full-length sequence, which
    # is all that engines with paged caches ask for before they start
    prefix_caching: bool | None = None  # of models whose layers keep states; None: the engine's own
    offloaded_bytes: int = 0  # of the weights on each device, kept in the host's memory
    eager: bool = False  # without CUDA graphs
    computes_wide: bool = False  # in 32 bits, which double weights and activations
    block_tokens: int = 0  # of the cache; 0: the rules'
    adapters: AdapterSlots | None = None  # LoRA adapters that are held at once
    engine: str = ""  # `vllm`; "": the estimate for engines without figures of their own
    engine_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """Inputs from which the parts of one budget are computed."""

    profile: ModelProfile
    instance: Instance
    shape: Shape  # of one copy of attention
    split: Split
    demand: MemoryInputs
    rules: MemoryRules
    paged: EngineMemory | None  # how the engine gives out the cache of GPUs
    engine: EngineMemory | None  # what it takes besides, where starts were seen: NVIDIA's
    step_tokens: int  # that are computed at once


def make_budget(
    profile: ModelProfile,
    instance: Instance,
    shape: Shape,
    tp_degree: int,
    demand: MemoryInputs | None = None,
    *,
    pp_degree: int = 1,
    expert_degree: int = 0,
    expert_parallel: bool = False,
) -> MemoryBudget:
    """Compute the memory budget of one device when `tp_degree` times `pp_degree` share the model.

    `shape` is that of one copy of attention.  `expert_degree` counts the devices over which
    routed experts are spread, where those are more than `tp_degree`; `expert_parallel` assigns
    whole experts to devices.  The budget is that of the fullest pipeline stage.
    """
    spread = expert_degree > tp_degree
    split = Split(
        tp_degree=tp_degree,
        pp_degree=pp_degree,
        dp_degree=expert_degree // tp_degree if spread else 1,
        dp_attention=spread,
        expert_parallel=expert_parallel,
    )
    setting = _make_setting(profile, instance, shape, split, demand or MemoryInputs())
    demand, rules = setting.demand, setting.rules
    layout = _kv_layout(setting)
    weights = _weights_bytes(setting)
    overhead = _overhead_bytes(setting, weights)
    least = setting.engine.least_reserve_bytes if setting.engine else rules.least_reserve_bytes
    computing = _activations_bytes(setting) * (2 if demand.computes_wide else 1)
    activations = max(least - overhead, computing)
    usable = _usable_bytes(setting, activations + overhead, overhead)
    draft_kv_per_token = _draft_kv_per_token(demand, split.tp_degree)
    sequences = setting.shape.max_batch
    if rules.kv_block_tokens and not demand.reserve:
        sequences = 1
    return MemoryBudget(
        tp_degree=split.tp_degree,
        pp_degree=split.pp_degree,
        device_bytes=instance.device_bytes,
        usable_bytes=usable,
        weights_bytes=weights,
        activations_bytes=activations,
        overhead_bytes=overhead,
        kv_bytes_per_token=layout.bytes_per_token,
        kv_bytes=_kv_bytes(setting, layout, sequences),
        draft_weights_bytes=_draft_weights(demand.draft, split.tp_degree),
        draft_kv_bytes_per_token=draft_kv_per_token,
        draft_kv_bytes=_whole_blocks(sequences, setting) * draft_kv_per_token,
        state_bytes=sequences * layout.sequence_bytes,
        kv_shares=_with_draft(layout.shares, draft_kv_per_token),
        kv_block_tokens=max(1, layout.block_tokens),
        in_flight_tokens=_in_flight_tokens(setting),
        visible_bytes=visible_bytes(instance) if setting.engine else 0,
        lacking_bytes=_lacking_bytes(setting, usable),
    )


def served_weight_bytes(profile: ModelProfile) -> int:
    """Return the weights' size in memory: 32-bit weights are cast to 16 bits on loading."""
    cast = profile.dtype == "fp32" and not profile.quantization
    loaded = profile.weight_bytes - profile.unserved_bytes
    return loaded // 2 if cast else loaded


def limit_step(profile: ModelProfile, instance: Instance, demand: MemoryInputs) -> int | None:
    """Return the tokens of a step that leave compressed attention its cache.

    None where the engine's own choice does.  vLLM keeps for every sequence what is not compressed
    yet of all tokens in flight: at DeepSeek-V4's 16,384 more than 256,000 compressed tokens take.
    """
    if not any(group.kind == "sums" for group in profile.kv_groups):
        return demand.max_prefill_tokens
    setting = _make_setting(
        profile,
        instance,
        Shape(max_batch=1, max_input_tokens=1, max_total_tokens=2),
        Split(tp_degree=1),
        demand,
    )
    most = setting.paged.compressed_in_flight if setting.paged else 0
    if demand.max_prefill_tokens is not None or _in_flight_tokens(setting) <= most or not most:
        return demand.max_prefill_tokens
    return most * setting.step_tokens // _in_flight_tokens(setting)


def _make_setting(
    profile: ModelProfile, instance: Instance, shape: Shape, split: Split, demand: MemoryInputs
) -> _Setting:
    found, rules = None, RULES[instance.kind]
    if instance.kind in GPUS:
        found = engine_memory(
            demand.engine, demand.engine_version, profile.weight_format, instance, split
        )
    return _Setting(
        profile=profile,
        instance=instance,
        shape=shape,
        split=split,
        demand=demand,
        rules=replace(rules, kv_block_tokens=demand.block_tokens or rules.kv_block_tokens),
        paged=found,
        engine=found if instance.kind == "nvidia" else None,
        step_tokens=max(_step_tokens(instance, shape, demand), shape.max_batch),
    )


def _usable_bytes(setting: _Setting, reserve: int, overhead: int) -> int:
    """Return what the engine may take, `reserve` for computing included."""
    asked, rules, engine = setting.demand.usable_share, setting.rules, setting.engine
    whole = visible_bytes(setting.instance) if engine else setting.instance.device_bytes
    if asked is not None and engine is not None and engine.static_share:
        return int((whole - overhead) * asked) + reserve
    return int(whole * (asked or rules.usable_share))


def _lacking_bytes(setting: _Setting, usable: int) -> int:
    """Return the bytes missing outside the engine's share of memory.

    Context, and graphs in versions that do not count them, lie outside of the share: an engine with
    a larger share fills its cache, and then runs out of memory.
    """
    engine = setting.engine
    if engine is None:
        return 0
    outside = engine.context_bytes + setting.shape.max_batch * engine.loose_sequence_bytes
    if setting.profile.experts:
        outside += engine.context_experts_bytes
    if not engine.graphs_inside:
        outside += int(_graph_bytes(setting) * engine.graph_excess)
    return max(0, usable + outside - visible_bytes(setting.instance))


def _overhead_bytes(setting: _Setting, weights: int) -> int:
    split, rules = setting.split, setting.rules
    if setting.engine is not None:
        inside = _graph_bytes(setting) if setting.engine.graphs_inside else 0
        return setting.engine.non_torch_bytes + inside
    overhead = rules.overhead_bytes + int(weights * rules.copy_share * (split.tp_degree - 1))
    return overhead + (rules.parallel_overhead_bytes if split.devices > 1 else 0)


def _graph_bytes(setting: _Setting) -> int:
    """Estimate the memory of CUDA graphs: of their sizes, and of the layers of one stage."""
    engine = setting.engine
    if engine is None or not engine.graph_layer_bytes or setting.demand.eager:
        return 0
    layers = -(-setting.profile.layers // setting.split.pp_degree)
    sizes = graph_sizes(setting.shape.max_batch)
    experts = engine.graph_experts_bytes if setting.profile.experts else 0
    return engine.graph_bytes + experts + layers * sizes * engine.graph_layer_bytes


def _weights_bytes(setting: _Setting) -> int:
    """Return the weights of the fullest stage on one device.

    Experts are spread over more devices than attention where the copies of attention share
    them; formats whose kernels pad experts do so for the part that one device has.
    """
    profile, split, demand = setting.profile, setting.split, setting.demand
    served = served_weight_bytes(profile)
    whole = served if demand.weight_bytes is None else demand.weight_bytes
    if demand.computes_wide:
        whole *= 2
    staged = _stage_bytes(profile, whole, split.pp_degree)
    experts = 0
    if profile.expert_bytes and served:
        experts = staged * min(profile.expert_bytes, served) // served
    padded = int(experts * _expert_padding(setting)) // split.expert_degree
    weights = -(-(staged - experts) // split.tp_degree) + padded
    if setting.instance.kind == "nvidia":
        extra = extra_weights(profile.architecture)
        weights += int(weights * extra.share) + extra.extra_bytes
    weights = max(0, weights - demand.offloaded_bytes)
    return weights + adapter_bytes(profile, split, demand.adapters)


def _expert_padding(setting: _Setting) -> float:
    profile, split, slots = setting.profile, setting.split, setting.demand.adapters
    multiple = padding_multiple(profile.weight_format)
    if multiple == 1 or not profile.expert_size:
        return 1.0
    if slots is not None and slots.count:
        degree = 1 if split.expert_parallel else split.tp_degree
        return math.prod(expert_padding(profile, degree, slots.multiples))
    here = profile.expert_size if split.expert_parallel else profile.expert_size // split.tp_degree
    return round_up(here, multiple) / max(1, here)


def _stage_bytes(profile: ModelProfile, whole: int, pp_degree: int) -> int:
    """Return the fullest stage: its share of the layers, and the larger end of the model.

    The embedding lies in the first stage, the output layer in the last.
    """
    if pp_degree == 1:
        return whole
    outside = min(profile.outside_bytes, whole)
    embedding = profile.vocab_size * profile.hidden_size * ELEMENT_BYTES
    end = outside - embedding if outside >= 2 * embedding else outside
    layers = (whole - outside) * -(-profile.layers // pp_degree) // max(1, profile.layers)
    return end + layers


def _kv_layout(setting: _Setting) -> KvLayout:
    return make_layout(
        setting.profile,
        setting.instance.kind,
        setting.split.tp_degree,
        setting.split.pp_degree,
        _paging(setting),
        element_bytes=setting.demand.kv_element_bytes,
    )


def _paging(setting: _Setting) -> Paging:
    paged, demand = setting.paged, setting.demand
    block_tokens = setting.rules.kv_block_tokens
    if paged is None or not paged.hybrid_cache:
        pages = paged.state_pages if paged else 1
        shares = paged is not None and paged.shares_index
        return Paging(block_tokens=block_tokens, state_pages=pages, shares_index=shares)
    caching = paged.prefix_caching if demand.prefix_caching is None else demand.prefix_caching
    pages = paged.state_pages if caching else 1
    if demand.draft:
        pages += demand.draft.speculative_tokens  # one to go back to for each that may fail
    return Paging(
        block_tokens=block_tokens,
        latent_block_tokens=paged.latent_block_tokens,
        group_ratio=paged.group_ratio,
        packs_sparse=paged.packs_sparse,
        shares_index=paged.shares_index,
        state_pages=pages,
        state_every_block=caching
        and keeps_every_state(demand.engine, demand.engine_version, setting.profile.architecture),
        packing="groups" if paged.packs_groups else "repeats",
    )


def _in_flight_tokens(setting: _Setting) -> int:
    """Return the tokens of steps that windows of one sequence keep while they are computed."""
    steps = setting.paged.steps_in_flight if setting.paged else 1
    return setting.step_tokens * (steps + setting.split.pp_degree - 1)


def _kv_bytes(setting: _Setting, layout: KvLayout, sequences: int) -> int:
    """Return the cache of full slots, in whole blocks; vLLM keeps one block to itself.

    Every sequence keeps its windows; those being read may keep one step's tokens more.
    """
    total = setting.shape.max_total_tokens
    each = layout.request_bytes(total) - layout.sequence_bytes
    reading = layout.request_bytes(total, _in_flight_tokens(setting)) - layout.sequence_bytes
    spare = max(share.block_bytes for share in layout.shares) if layout.block_tokens else 0
    needed = sequences * each + (reading - each) + spare
    return round_up(needed, setting.rules.kv_granule_bytes)


def _whole_blocks(sequences: int, setting: _Setting) -> int:
    block, total = setting.rules.kv_block_tokens, setting.shape.max_total_tokens
    return sequences * round_up(total, block) + block


def _with_draft(shares: tuple[KvShare, ...], draft_per_token: int) -> tuple[KvShare, ...]:
    if not draft_per_token:
        return shares
    return (*shares, KvShare(block_bytes=draft_per_token))


def _draft_weights(draft: Draft | None, tp_degree: int) -> int:
    if draft is None:
        return 0
    return draft.weight_bytes if draft.replicated else -(-draft.weight_bytes // tp_degree)


def _draft_kv_per_token(demand: MemoryInputs, tp_degree: int) -> int:
    draft = demand.draft
    if draft is None or not draft.kv_bytes_per_token:
        return 0
    whole = draft.kv_bytes_per_token * demand.kv_element_bytes // 2
    return whole * max(1, draft.kv_heads // tp_degree) // max(1, draft.kv_heads)


def _activations_bytes(setting: _Setting) -> int:
    """Estimate the peak of one step: that of the layers, or that of sampling.

    Alive at once in a layer: four hidden states (residual, norm, input, output), whole on
    every device; and split over the devices gate, up and their product, or Q, K and V,
    whichever is wider.  Sampling keeps the hidden states, and works on the logits of one
    position of each sequence.  What a tower made of its images is kept through both.
    """
    profile, tokens = setting.profile, setting.step_tokens
    tp_degree, hidden = setting.split.tp_degree, tokens * setting.profile.hidden_size
    qkv = (profile.heads + 2 * profile.kv_heads) * profile.head_dim
    inner = 3 * profile.intermediate_size
    if profile.experts:
        inner = max(inner, 3 * profile.experts_per_token * profile.expert_size)
    samples = profile.vocab_size if profile.pooling is None else 0
    if setting.engine is None:
        split = (inner + qkv) // tp_degree * tokens
        logits = setting.shape.max_batch * samples * LOGIT_BYTES
        return (4 * hidden + split) * ELEMENT_BYTES + logits
    workspace = _workspace_bytes(setting)
    held = workspace + _index_workspace_bytes(setting)
    held += hidden * ELEMENT_BYTES if profile.tower_bytes else 0
    dense = 0 if workspace else inner
    layer = (4 * hidden + tokens * max(dense, qkv) // tp_degree) * ELEMENT_BYTES
    entries = setting.shape.max_batch * samples
    sampling = int(entries * setting.engine.sampler_bytes) + setting.engine.step_bytes
    sampling += hidden * ELEMENT_BYTES
    if setting.split.pp_degree > 1:
        sampling += 2 * hidden * ELEMENT_BYTES  # sent from one stage to the next
    return max(held + max(layer, sampling), _tower_activations_bytes(setting))


def _tower_activations_bytes(setting: _Setting) -> int:
    """Return the peak of what reads images: of a step of them, one image of the largest at least.

    Engines run it before the language model, whose input its output is.
    """
    profile = setting.profile
    tokens = max(setting.step_tokens, image_tokens(profile.model_type))
    patches = tokens * profile.tower_patches * profile.tower_patch_bytes
    return patches + tokens * profile.hidden_size * ELEMENT_BYTES if patches else 0


def _workspace_bytes(setting: _Setting) -> int:
    """Return the buffers of the experts' kernels: gate and up, their product, the output."""
    profile, engine = setting.profile, setting.engine
    packed = padding_multiple(profile.weight_format) > 1  # other kernels, without them
    if engine is None or not engine.expert_workspace or not profile.experts or packed:
        return 0
    size = profile.expert_size
    if not setting.split.expert_parallel:
        size //= setting.split.tp_degree
    pairs = setting.step_tokens * profile.experts_per_token
    return pairs * (max(2 * size, profile.hidden_size) + size) * ELEMENT_BYTES


def _index_workspace_bytes(setting: _Setting) -> int:
    """Return what an indexer gathers keys of several long prompts in, and their scores."""
    engine, profile = setting.engine, setting.profile
    index = next(
        (g for g in profile.kv_groups if g.kind in ("mla", "compressed") and not g.head_dim), None
    )
    if engine is None or index is None or not engine.index_prompts:
        return 0
    entries = setting.shape.max_total_tokens * engine.index_prompts // index.entry_tokens
    return entries * index.entry_bytes + engine.index_scores_bytes


def _step_tokens(instance: Instance, shape: Shape, demand: MemoryInputs) -> int:
    if demand.max_prefill_tokens is not None:
        return demand.max_prefill_tokens
    if instance.kind == "neuron":
        return shape.max_input_tokens  # a prompt is computed in one static shape
    return default_step(instance)
