"""The line. Every command is this sequence, stopped early or run with other services.

    request ─▶ facts ─▶ plan ─▶ recipe ─▶ artifacts ─▶ serving ─▶ image ─▶ refs ─▶ record

Everything that can be refused is refused before the first step runs, and
nothing is named before everything is there.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from packager.core.image import Written
from packager.core.request import BuildRequest
from packager.estimate.performance.measured import measured_starts
from packager.estimate.sizing.nodes import refuse_unasked_nodes
from packager.images.assemble import assemble_image, assemble_nothing, check_layers
from packager.images.rootfs.placement import PlacedFiles
from packager.images.trees.layers import with_tree
from packager.optimize.steps.running import with_cache_healed
from packager.optimize.steps.services import RunStep
from packager.pipeline.base_files import BaseFiles
from packager.pipeline.cache_policy import apply_miss_policy
from packager.pipeline.effort import with_times
from packager.pipeline.finishing import finish_recipe
from packager.pipeline.planned import make_decided, make_planned
from packager.pipeline.planning.health import health_check
from packager.pipeline.running import run_recipe, with_effective_shape, with_tools_installed
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import FIRST_STAGES, Assembled, Planned, stages_of

if TYPE_CHECKING:
    from packager.core.record import BuildRecord, Transfer


def plan(request: BuildRequest, services: BuildServices, *, with_base: bool = False) -> Planned:
    """Decide what would be built. A base image is only read for compilers' keys."""
    planned = make_planned(make_decided(request, services), services, with_base=with_base)
    forecasts = tuple(map(services.check_cache, planned.recipe.steps))
    return with_times(replace(planned, forecasts=forecasts), services)


def assemble(
    request: BuildRequest, services: BuildServices, run_step: RunStep | None = None
) -> Assembled:
    """Run the line up to the image without writing it. Without `run_step` no step runs.

    Outputs and the base are checked after the plan, before anything is downloaded.
    """
    from packager.pipeline.record import make_labels  # not imported for a plan
    from packager.pipeline.tree import make_tree, plan_of_tree

    decided = make_decided(request, services)
    refuse_unasked_nodes(decided.plan, request.nodes)
    measured_starts(decided.plan, services.measured, known_as=(request.model,))  # raises early
    if run_step:
        services.preflight()
    base_files = BaseFiles(services, with_layers=run_step is not None)
    planned = make_planned(decided, services, with_base=True, look=base_files.read)
    planned = replace(planned, plan=base_files.compare_options(planned.plan))
    tree_plan = plan_of_tree(planned.plan, services) if services.outputs != "images" else None
    forecasts = tuple(map(services.check_cache, planned.recipe.steps))
    planned = apply_miss_policy(replace(planned, forecasts=forecasts), services.on_miss)
    planned = with_tools_installed(planned, services) if run_step else with_times(planned, services)
    if run_step:
        services.on_event(stages_of(planned))
    results = run_recipe(planned.recipe, planned.facts, run_step)
    finished = finish_recipe(planned, results, services, run_step)
    planned, artifacts, facts = finished.planned, finished.artifacts, planned.facts
    plan = with_effective_shape(planned.plan, artifacts)
    planned = replace(planned, plan=plan)  # the record states what is served
    serving = services.family(facts.container.family).render(plan, artifacts)
    assert facts.base is not None
    placed = PlacedFiles()
    if services.outputs == "trees":
        image = assemble_nothing(facts.base, services.created)
    else:
        placed = base_files.place(facts, plan, artifacts, serving)
        image = assemble_image(
            facts.base,
            artifacts,
            serving,
            labels=make_labels(facts, plan),
            created=services.created,
            health=health_check(plan, serving.port),
            weights=plan.weights,
            order=facts.request.layer_order or "base-first",
            compression=facts.request.compression or "none",
            placement=placed.placement,
        )
        if facts.request.layer_format == "erofs":
            from packager.images.erofs.layers import with_file_systems

            image = with_file_systems(image)
    if tree_plan is not None:
        same = replace(tree_plan, shape=plan.shape)
        tree = make_tree(planned, results, services, plan=same)
        image = with_tree(image, tree)
    limit = facts.request.max_layer_size
    return Assembled(
        planned=planned,
        artifacts=artifacts,
        serving=serving,
        image=image,
        findings=(*placed.findings, *(check_layers(image, limit) if limit else ())),
        quality=finished.quality,
    )


def build(request: BuildRequest, services: BuildServices) -> BuildRecord:
    """Write the image to every output and record how it was made."""
    from packager.pipeline.record import make_record

    started = time.monotonic()
    services.on_event(FIRST_STAGES)
    with services.run_steps() as run_step:

        def work() -> tuple[Assembled, Written, Transfer]:
            assembled = assemble(request, services, run_step)
            return assembled, *services.write(assembled.image)

        assembled, written, transfer = with_cache_healed(services, work)
    seconds = time.monotonic() - started
    record = make_record(assembled, written, transfer, seconds=seconds, measured=services.measured)
    services.save(record)
    services.attach(record, written.image)
    return record
