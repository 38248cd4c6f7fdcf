"""The line. Every command is this sequence, stopped early or run with other services.

    request ─▶ facts ─▶ plan ─▶ recipe ─▶ artifacts ─▶ serving ─▶ image ─▶ refs ─▶ record

Everything that can be refused is refused before the first step runs, and
nothing is named before everything is there.
"""

from __future__ import annotations

import time
from dataclasses import replace

from packager.build.cache_policy import as_allowed, with_cache_healed
from packager.build.effort import with_times
from packager.build.planned import make_planned
from packager.build.quality import evaluated
from packager.build.record import make_labels, make_record
from packager.build.running import run_recipe, with_effective_shape, with_tools_installed
from packager.build.services import BuildServices, RunStep
from packager.build.stages import Assembled, Planned
from packager.build.weights import split_weights, with_draft_laid_out
from packager.core.image import Written
from packager.core.record import BuildRecord, Transfer
from packager.core.request import BuildRequest
from packager.imaging.assemble import assemble_image, check_layers
from packager.planning.nodes import refuse_nodes


def plan(request: BuildRequest, services: BuildServices, *, with_base: bool = False) -> Planned:
    """Decide what would be built. No base image is needed for that, but for compilers' keys."""
    planned = make_planned(request, services, with_base=with_base)
    forecasts = tuple(map(services.foresee, planned.recipe.steps))
    return with_times(replace(planned, forecasts=forecasts), services)


def assemble(
    request: BuildRequest, services: BuildServices, run_step: RunStep | None = None
) -> Assembled:
    """Do everything but write. Without `run_step` nothing is run either."""
    planned = make_planned(request, services, with_base=True)
    refuse_nodes(planned.plan)
    forecasts = tuple(map(services.foresee, planned.recipe.steps))
    planned = as_allowed(replace(planned, forecasts=forecasts), services.on_miss)
    planned = with_tools_installed(planned, services) if run_step else with_times(planned, services)
    facts, plan = planned.facts, planned.plan
    artifacts = run_recipe(planned.recipe, facts, run_step)
    quality = None
    if run_step and facts.evaluation is not None:
        planned, artifacts, quality = evaluated(planned, artifacts, services, run_step)
    if plan.weights == "baked":
        artifacts = with_draft_laid_out(artifacts, planned, services.read_header)
        artifacts = split_weights(artifacts, services.read_header, facts.request.max_layer_size)
    plan = with_effective_shape(plan, artifacts)
    planned = replace(planned, plan=plan)  # the record says what is served
    serving = services.family(facts.container.family).render(plan, artifacts)
    assert facts.base is not None
    image = assemble_image(
        facts.base,
        artifacts,
        serving,
        labels=make_labels(facts, plan),
        created=services.created,
        weights=plan.weights,
        order=facts.request.layer_order or "base-first",
        compression=facts.request.compression or "none",
    )
    limit = facts.request.max_layer_size
    return Assembled(
        planned=planned,
        artifacts=artifacts,
        serving=serving,
        image=image,
        findings=tuple(check_layers(image, limit)) if limit else (),
        quality=quality,
    )


def build(request: BuildRequest, services: BuildServices) -> BuildRecord:
    """Write the image to every output and record how it was made."""
    started = time.monotonic()
    services.reach()
    with services.run_steps() as run_step:

        def work() -> tuple[Assembled, Written, Transfer]:
            assembled = assemble(request, services, run_step)
            return assembled, *services.write(assembled.image)

        assembled, written, transfer = with_cache_healed(services, work)
    record = make_record(assembled, written, transfer, seconds=time.monotonic() - started)
    services.save(record)
    return record
