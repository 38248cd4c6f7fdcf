"""The line. Every command is this sequence, stopped early or run with other services.

    request ─▶ facts ─▶ plan ─▶ recipe ─▶ artifacts ─▶ serving ─▶ image ─▶ refs ─▶ record

Everything that can be refused is refused before the first step runs, and
nothing is named before everything is there.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from packager.core.image import ImageSpec, LayerFormat, Written
from packager.core.request import BuildRequest
from packager.estimate.performance.measured import measured_starts
from packager.estimate.sizing.nodes import refuse_unasked_nodes
from packager.images.assemble import assemble_image, assemble_nothing, check_layers
from packager.images.rootfs.placement import PlacedFiles
from packager.images.trees.layers import with_files, with_tree
from packager.optimize.steps.running import with_cache_healed
from packager.optimize.steps.services import RunStep
from packager.pipeline.base_files import BaseFiles
from packager.pipeline.cache_policy import apply_miss_policy
from packager.pipeline.effort import with_times
from packager.pipeline.finishing import finish_recipe
from packager.pipeline.planned import make_decided, make_planned
from packager.pipeline.planning.health import health_check
from packager.pipeline.running import run_recipe, with_effective_shape, with_tools_installed
from packager.pipeline.services import BuildServices, Documents
from packager.pipeline.stages import FIRST_STAGES, Assembled, Planned, stages_of
from packager.pipeline.streaming import forecast, lacks_layers, streams, with_known_layers

if TYPE_CHECKING:
    from packager.core.record import BuildRecord, Transfer


def plan(request: BuildRequest, services: BuildServices, *, with_base: bool = False) -> Planned:
    """Decide what would be built. A base image is only read for compilers' keys."""
    planned = make_planned(make_decided(request, services), services, with_base=with_base)
    return with_times(replace(planned, forecasts=forecast(planned, services)), services)


def assemble(
    request: BuildRequest, services: BuildServices, run_step: RunStep | None = None
) -> Assembled:
    """Run the line up to the image without writing it. Without `run_step` no step runs.

    Outputs and the base are checked after the plan, before anything is downloaded.  Where layers
    were to be in a tool's place and no output has them, the tool runs.
    """
    assembled = _assemble(request, services, run_step)
    if run_step is None or not lacks_layers(assembled, services):
        return assembled
    return _assemble(request, replace(services, takes_layers=False), run_step)


def _assemble(
    request: BuildRequest, services: BuildServices, run_step: RunStep | None
) -> Assembled:
    from packager.pipeline.record import make_labels  # not imported for a plan
    from packager.pipeline.tree import make_tree, plan_of_tree

    decided = make_decided(request, services)
    refuse_unasked_nodes(decided.plan, request.nodes)
    measured_starts(decided.plan, services.measured, known_as=(request.model,))  # raises early
    if run_step:
        services.preflight()
    base_files = BaseFiles(services, with_layers=run_step is not None)
    ordered = make_planned(decided, services, with_base=True, look=base_files.read)
    compared = replace(ordered, plan=base_files.compare_options(ordered.plan))
    tree_plan = plan_of_tree(compared.plan, services) if services.outputs != "images" else None
    known = replace(compared, forecasts=forecast(compared, services))
    planned = apply_miss_policy(known, services.on_miss)
    ready = with_tools_installed(planned, services) if run_step else with_times(planned, services)
    if run_step:
        services.on_event(stages_of(ready))
    results = run_recipe(ready.recipe, ready.facts, run_step)
    finished = finish_recipe(ready, results, services, run_step)
    artifacts, facts = finished.artifacts, ready.facts
    plan = with_effective_shape(finished.planned.plan, artifacts)
    served = replace(finished.planned, plan=plan)  # the record states what is served
    serving = services.family(plan.container.family).render(plan, artifacts)
    assert facts.base is not None
    if services.outputs == "trees":
        placed, image = PlacedFiles(), assemble_nothing(facts.base, services.created)
    else:
        placed = base_files.place(facts, plan, artifacts, serving)
        image = _in_format(
            plan.layers.format,
            assemble_image(
                facts.base,
                artifacts,
                serving,
                labels=make_labels(facts, plan),
                created=services.created,
                health=health_check(plan, serving.port),
                weights=plan.weights,
                order=plan.layers.order,
                compression=plan.layers.compression,
                placement=placed.placement,
            ),
        )
    image = with_known_layers(image, ready, services) if run_step else image
    whole, limit = image, plan.layers.max_size
    if tree_plan is not None:
        same = replace(tree_plan, shape=plan.shape)
        whole = with_tree(image, make_tree(served, results, services, plan=same))
    elif services.with_sbom:
        from packager.pipeline.sbom import hashed_files

        whole = with_files(image, hashed_files(artifacts, serving))
    return Assembled(
        planned=served,
        artifacts=artifacts,
        serving=serving,
        image=whole,
        findings=(*placed.findings, *(check_layers(whole, limit) if limit else ())),
        quality=finished.quality,
    )


def _in_format(layer_format: LayerFormat, image: ImageSpec) -> ImageSpec:
    """Return the image with its layers as file systems, too, where that is requested."""
    if layer_format != "erofs":
        return image
    from packager.images.erofs.layers import with_file_systems

    return with_file_systems(image)


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
    if assembled.planned.layers is not None and streams(assembled.planned):
        services.keep_layers(assembled.planned.layers, written)
    record = make_record(assembled, written, transfer, seconds=seconds, measured=services.measured)
    services.save(record)
    services.attach(record, written.image, _describe(assembled, written, record, services))
    return record


def _describe(
    assembled: Assembled, written: Written, record: BuildRecord, services: BuildServices
) -> Documents:
    """Return the documents about an image that travel with it, by media type."""
    if not services.with_sbom:
        return {}
    from packager.images.sbom.cyclonedx import MEDIA_CYCLONEDX, cyclonedx_document
    from packager.images.signatures.statements import MEDIA_IN_TOTO
    from packager.pipeline.provenance import make_provenance
    from packager.pipeline.sbom import make_sbom, passed_digests

    digest_of = passed_digests(written, services)
    return {
        MEDIA_CYCLONEDX: cyclonedx_document(make_sbom(assembled, written, services)),
        MEDIA_IN_TOTO: make_provenance(assembled, record, digest_of, services.policy),
    }
