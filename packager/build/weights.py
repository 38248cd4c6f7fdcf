"""Weights as layers and engines want them, described and never copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from packager.build.stages import Planned
from packager.core.artifact import Artifacts
from packager.core.model import ModelFile, WeightsHeader
from packager.imaging.reshard import split_large
from packager.techniques.drafts.relayout import lay_out_draft


def split_weights(
    artifacts: Artifacts, read_header: Callable[[ModelFile], WeightsHeader], limit: int | None
) -> Artifacts:
    """Describe weights files that are too large for a layer as shards. Nothing is copied."""
    return replace(
        artifacts,
        model=split_large(artifacts.model, read_header, limit=limit),
        draft=split_large(artifacts.draft, read_header, limit=limit),
    )


def with_draft_laid_out(
    artifacts: Artifacts, planned: Planned, read_header: Callable[[ModelFile], WeightsHeader]
) -> Artifacts:
    """Describe the draft's files as the engine reads them. Nothing is copied."""
    if planned.facts.draft is None:
        return artifacts
    config = planned.facts.draft.config
    return replace(
        artifacts, draft=lay_out_draft(artifacts.draft, config, planned.plan, read_header)
    )
