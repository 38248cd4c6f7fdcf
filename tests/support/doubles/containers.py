"""Containers with the traits that their families give them, as the planner sees them."""

from __future__ import annotations

from dataclasses import replace

from packager.core.facts import ContainerFacts
from packager.core.ports import ContainerFamily
from packager.engines.lmi.family import LmiFamily
from packager.engines.neuron.family import NeuronFamily
from packager.engines.sglang.family import SglangFamily
from packager.engines.tgi.family import TgiFamily
from packager.engines.vllm.family import VllmFamily

FAMILIES: dict[str, ContainerFamily] = {
    "vllm": VllmFamily(),
    "lmi": LmiFamily(),
    "tgi": TgiFamily(),
    "sglang": SglangFamily(),
    "neuron": NeuronFamily(),
}


def with_traits(container: ContainerFacts) -> ContainerFacts:
    """The container as the planner has it."""
    return replace(container, traits=FAMILIES[container.family].traits(container))
