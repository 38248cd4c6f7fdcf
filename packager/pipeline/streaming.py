"""Weights that are quantized while they are read, described by the headers of their source."""

from __future__ import annotations

from dataclasses import replace

from packager.optimize.steps.services import RunStep
from packager.pipeline.planning.recipe import quantizer_of
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Finished


def quantized_in_stream(
    finished: Finished,
    services: BuildServices,
    run_step: RunStep | None,  # noqa: ARG001
) -> Finished:
    """Describe the quantized files in place of the model's; no byte of weights is read."""
    planned = finished.planned
    quantizer = quantizer_of(planned.plan, planned.facts, planned.planning)
    assert quantizer is not None and quantizer.streams, "the recipe says so"
    model = quantizer.describe(planned.facts, planned.plan, services.read_header)
    return replace(finished, artifacts=replace(finished.artifacts, model=model))
