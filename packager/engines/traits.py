"""Traits of an engine, whatever container it is in: families add what theirs can start."""

from __future__ import annotations

from packager.core.facts import ContainerFacts
from packager.core.traits import UNKNOWN_ENGINE, EngineTraits
from packager.engines.sglang.traits import sglang_traits
from packager.engines.tgi.traits import tgi_traits
from packager.engines.vllm.traits import vllm_traits

ENGINE_TRAITS = {"vllm": vllm_traits, "sglang": sglang_traits, "tgi": tgi_traits}


def engine_traits(container: ContainerFacts) -> EngineTraits:
    """Return what holds of the engine inside a container; an unknown engine's traits otherwise."""
    of_version = ENGINE_TRAITS.get(container.engine)
    return of_version(container.engine_version) if of_version else UNKNOWN_ENGINE
