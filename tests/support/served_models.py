"""Models and set-ups that predictions are tested with, as the formula needs them."""

from __future__ import annotations

from dataclasses import replace

from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import find_instance
from packager.estimate.performance.predict import ServedDraft, ServedModel, Setup

QWEN3_32B = ServedModel(
    weight_bytes=65_524_246_528,
    parameters=32_762_123_264,
    layers=64,
    hidden_size=5120,
    kv_bytes_per_token=262_144,
)
MIXTRAL_8X7B = ServedModel(
    weight_bytes=93_405_585_408,
    parameters=46_702_792_704,
    layers=32,
    hidden_size=4096,
    kv_bytes_per_token=131_072,
    expert_share=0.966,
    experts=8,
    experts_per_token=2,
)
EAGLE = ServedDraft(
    speculative_tokens=3, acceptance_length=2.44, weight_bytes=1_500_000_000, layers=1
)


def setup(model: ServedModel, instance: str, tp_degree: int, **more: object) -> Setup:
    """Place a model on the devices of an instance."""
    accelerator = accelerator_of(find_instance(instance))
    return replace(Setup(model=model, accelerator=accelerator, tp_degree=tp_degree), **more)
