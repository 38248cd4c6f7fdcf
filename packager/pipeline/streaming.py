"""Weights that are quantized while they are read, described by the headers of their source."""

from __future__ import annotations

from dataclasses import replace

from packager.core.image import ImageSpec
from packager.core.plan import Plan
from packager.core.recipe import CacheStatus, Step
from packager.optimize.steps.services import RunStep
from packager.pipeline.planning.recipe import quantizer_of
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Assembled, Finished, Planned

LAYERS = "layers"  # the name of that look-up


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


def layers_step(step: Step, plan: Plan) -> Step | None:
    """Return how the layers of a checkpoint are looked up, which a tool's step would make."""
    from packager.optimize.cache.streamed import layers_key
    from packager.optimize.keys.documents import QuantizedCheckpointKey

    if not isinstance(step.key, QuantizedCheckpointKey):
        return None
    labels = {"model": plan.served_name, **step.labels}
    return replace(step, name=LAYERS, key=layers_key(step.key, plan.layers.format), labels=labels)


def forecast(planned: Planned, services: BuildServices) -> tuple[CacheStatus, ...]:
    """Return the cache's status of each step, and of layers of the stream that it knows."""
    found = [services.check_cache(step) for step in planned.recipe.steps]
    if planned.layers is not None and streams(planned):
        known = services.check_cache(planned.layers)
        found += [replace(known, tool="the stream")] if known.state == "hit" else []
    return tuple(found)


def streams(planned: Planned) -> bool:
    """Return whether weights are quantized in the stream."""
    return "quantize" in planned.recipe.finishes


def with_known_layers(image: ImageSpec, planned: Planned, services: BuildServices) -> ImageSpec:
    """Return the image with what the cache knows of layers that are quantized in the stream."""
    if planned.layers is None or not any(layer.blob.is_computed for layer in image.layers):
        return image
    return services.find_layers(planned.layers, image)


def lacks_layers(assembled: Assembled, services: BuildServices) -> bool:
    """Return whether layers that took a tool's place would have to be computed."""
    planned = assembled.planned
    asked = services.find_quantizer(planned.facts.request.quantizing)
    if not streams(planned) or asked is None:
        return False
    by_tool = not asked.for_plan(planned.facts, planned.plan).streams
    return by_tool and not services.have_layers(assembled.image)
