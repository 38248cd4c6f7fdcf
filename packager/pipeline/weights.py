"""Weights as layers and engines want them, described and never copied."""

from __future__ import annotations

from dataclasses import replace

from packager.images.reshard import split_large
from packager.optimize.drafts.relayout import convert_draft_layout
from packager.optimize.steps.services import RunStep
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Finished


def with_split_weights(
    finished: Finished,
    services: BuildServices,
    run_step: RunStep | None,  # noqa: ARG001
) -> Finished:
    """Describe weights files above the layer size limit as shards, without copying."""
    artifacts, limit = finished.artifacts, finished.planned.plan.layers.max_size
    read_header = services.read_header
    shards = replace(
        artifacts,
        model=split_large(artifacts.model, read_header, limit=limit),
        draft=split_large(artifacts.draft, read_header, limit=limit),
    )
    return replace(finished, artifacts=shards)


def with_draft_laid_out(
    finished: Finished,
    services: BuildServices,
    run_step: RunStep | None,  # noqa: ARG001
) -> Finished:
    """Describe the draft's files in the engine's layout, without copying."""
    artifacts, planned = finished.artifacts, finished.planned
    assert planned.facts.draft is not None
    config = planned.facts.draft.config
    draft = convert_draft_layout(artifacts.draft, config, planned.plan, services.read_header)
    return replace(finished, artifacts=replace(artifacts, draft=draft))
