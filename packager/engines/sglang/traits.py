"""Traits of SGLang, in any container."""

from __future__ import annotations

from packager.core.traits import DraftTraits, EngineTraits

TRAITS = EngineTraits(
    when_full="more wait in a queue; when the cache is full, the latest is retracted and computed "
    "again",
    drafts=DraftTraits(norm_before_residual=False, options="speculative-algorithm"),
)


def sglang_traits(version: str) -> EngineTraits:  # noqa: ARG001
    """Return what holds of every version alike."""
    return TRAITS
