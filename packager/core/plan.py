"""Decisions: what will run where, with what memory, and what was passed over."""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.model import ModelProfile, ModelRef
from packager.core.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """Memory of one device, in bytes, at one tensor-parallel degree."""

    tp_degree: int
    device_bytes: int
    usable_bytes: int  # what the engine may take
    weights_bytes: int
    activations_bytes: int
    overhead_bytes: int  # engine, graphs, communication buffers
    kv_bytes_per_token: int  # on this device
    kv_bytes: int  # for the planned shape

    @property
    def needed_bytes(self) -> int:
        return self.weights_bytes + self.activations_bytes + self.overhead_bytes + self.kv_bytes

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.usable_bytes

    @property
    def kv_tokens_left(self) -> int:
        """Tokens of KV cache that fit beside weights, activations and overhead."""
        fixed = self.weights_bytes + self.activations_bytes + self.overhead_bytes
        return max(0, self.usable_bytes - fixed) // max(1, self.kv_bytes_per_token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole decision. Pure function of the facts."""

    model: ModelRef
    profile: ModelProfile
    instance: Instance
    container: ContainerFacts
    served_name: str
    shape: Shape
    tp_degree: int
    replicas: int  # copies of the model that the instance's devices hold
    dtype: str  # what the engine computes with: `bf16`, `fp16`
    precision: str  # one word for tables: `bf16`, `w4a16`
    budget: MemoryBudget
    findings: tuple[Finding, ...]
