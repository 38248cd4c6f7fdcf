"""Traits of TGI, in any container."""

from __future__ import annotations

from packager.core.traits import DraftTraits, EngineTraits

TRAITS = EngineTraits(
    when_full="more wait until their tokens fit, and beyond MAX_CONCURRENT_REQUESTS are refused",
    drafts=DraftTraits(medusa_file="medusa_lm_head.safetensors", medusa_is_model=True),
)


def tgi_traits(version: str) -> EngineTraits:  # noqa: ARG001
    """Return what holds of every version alike."""
    return TRAITS
