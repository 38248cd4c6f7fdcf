"""Suggestion of a 4-bit checkpoint for a model whose checkpoint has 8 bits a weight.

Such a checkpoint cannot be made of the other: it is one to look for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from packager.core.checkpoint import QuantizedCheckpoint
from packager.core.errors import PlanRejected
from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.model import ModelProfile
from packager.core.plan import Plan
from packager.core.traits import EngineTraits
from packager.core.units import gib
from packager.estimate.sizing.processors import may_compute
from packager.estimate.sizing.schemes import W4A16

HALVED = frozenset({"fp8_w8a8", "int8_w8a8", "mxfp8"})  # formats of 8 bits


def find_smaller_checkpoint(
    profile: ModelProfile,
    instance: Instance,
    traits: EngineTraits,
    plan: Callable[[ModelProfile], Plan],
    known: tuple[QuantizedCheckpoint, ...] = (),
) -> tuple[Finding, ...]:
    """Return a note where the model with 4 bits a weight fits one machine of the instance type.

    The size is estimated, the plan is made as any other; `known` are published checkpoints.
    """
    if profile.weight_format not in HALVED:
        return ()
    smaller = with_four_bits(profile)
    try:
        found = plan(smaller)
    except PlanRejected:
        return ()
    if found.nodes > 1:
        return ()
    message = (
        f"a checkpoint of the model with 4 bits a weight, about {gib(smaller.weight_bytes)}, "
        f"would fit: {found.split.words}"
    )
    names = [
        f"{one.reference} ({one.method})"
        for one in known
        if may_compute(one.weight_format, instance, traits)
    ]
    hint = f"published: {', '.join(names)}" if names else "look for one in AWQ or GPTQ format"
    return (Finding("note", "smaller-checkpoint", message, hint),)


def with_four_bits(profile: ModelProfile) -> ModelProfile:
    """Return the profile of the model's AWQ checkpoint: layers in groups, the rest as it is."""
    bits = W4A16.bits + (8 * W4A16.scale_bytes + W4A16.zero_bits) / W4A16.group_size
    share = bits / 8
    packed = profile.weight_bytes - profile.outside_bytes
    return replace(
        profile,
        weight_bytes=profile.outside_bytes + int(packed * share),
        expert_bytes=int(profile.expert_bytes * share),
        unserved_bytes=int(profile.unserved_bytes * share),
        quantization="awq",
        weight_format=W4A16.needs,
        group_size=W4A16.group_size,
        quantization_options=(),
    )
