"""The line. Every command is this sequence, stopped early or run with other doers.

    request ─▶ facts ─▶ plan ─▶ recipe ─▶ artifacts ─▶ serving ─▶ image ─▶ refs ─▶ record

Everything that can be refused is refused before the first step runs, and
nothing is named before everything is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

from packager.core.artifact import Artifacts
from packager.core.catalog import Accelerator, Rule
from packager.core.facts import ContainerFacts, Facts
from packager.core.findings import Finding
from packager.core.image import BaseImage, ImageSpec, Platform, Written
from packager.core.instance import Instance
from packager.core.model import ModelFile, ModelFiles, WeightsHeader
from packager.core.plan import Plan
from packager.core.recipe import Recipe
from packager.core.record import (
    BuildRecord,
    RecordedBase,
    RecordedFinding,
    RecordedImage,
    RecordedLayer,
    RecordedModel,
    Transfer,
)
from packager.core.request import BuildRequest
from packager.core.serving import ServingConfig
from packager.imaging.assemble import assemble_image, check_layers
from packager.imaging.reshard import split_large
from packager.planning.planner import make_plan
from packager.planning.recipe import make_recipe
from packager.ports import ContainerFamily, Executor
from packager.resolve import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The doers a run uses. Chosen in `wiring`, replaced in tests."""

    find_model: Callable[[str], ModelFiles]
    find_instance: Callable[[str], Instance]
    find_container: Callable[[BuildRequest, Instance], ContainerFacts]
    find_base: Callable[[str, Platform], BaseImage]
    family: Callable[[str], ContainerFamily]
    executor: Executor
    reach: Callable[[], None]  # the outputs, before any work
    write: Callable[[ImageSpec], tuple[Written, Transfer]]
    save: Callable[[BuildRecord], None]
    created: str  # RFC 3339 time that goes into the image
    accelerator_of: Callable[[Instance], Accelerator]
    read_header: Callable[[ModelFile], WeightsHeader]  # of weights to be split, wherever they are
    find_draft: Callable[[str], ModelFiles] | None = None
    known_draft: Callable[[ModelFiles], str] | None = None  # what `--draft auto` means
    instances: tuple[Instance, ...] = ()  # that may be suggested when nothing fits
    rules: tuple[Rule, ...] = ()  # what goes together and what does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The line up to the recipe: nothing has been run or written."""

    facts: Facts
    plan: Plan
    recipe: Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """The line up to the image: steps have run, no sink was touched."""

    planned: Planned
    artifacts: Artifacts
    serving: ServingConfig
    image: ImageSpec
    findings: tuple[Finding, ...] = ()  # what only the assembled image shows


def plan(request: BuildRequest, tools: Tools) -> Planned:
    """Decide what would be built. No base image is needed for that."""
    return _planned(request, tools, with_base=False)


def assemble(request: BuildRequest, tools: Tools) -> Assembled:
    """Do everything but write. With the dry-run executor nothing is run either."""
    planned = _planned(request, tools, with_base=True)
    facts, plan = planned.facts, planned.plan
    artifacts = run_recipe(planned.recipe, facts, tools.executor)
    if plan.weights == "baked":
        artifacts = split_weights(artifacts, tools.read_header, facts.request.max_layer_size)
    serving = tools.family(facts.container.family).render(plan, artifacts)
    assert facts.base is not None
    image = assemble_image(
        facts.base,
        artifacts,
        serving,
        labels=make_labels(facts, plan),
        created=tools.created,
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
    )


def build(request: BuildRequest, tools: Tools) -> BuildRecord:
    """Write the image to every output and record how it was made."""
    started = time.monotonic()
    tools.reach()
    assembled = assemble(request, tools)
    written, transfer = tools.write(assembled.image)
    record = make_record(assembled, written, transfer, seconds=time.monotonic() - started)
    tools.save(record)
    return record


def run_recipe(recipe: Recipe, facts: Facts, executor: Executor) -> Artifacts:
    """Run the steps in order. Without steps the model and its draft are served as they are."""
    for step in recipe.steps:
        executor.run(step)
    return Artifacts(
        model=facts.model.files,
        draft=facts.draft.files if facts.draft else (),
        ran=tuple(step.name for step in recipe.steps),
    )


def split_weights(
    artifacts: Artifacts, read_header: Callable[[ModelFile], WeightsHeader], limit: int | None
) -> Artifacts:
    """Describe weights files that are too large for a layer as shards. Nothing is copied."""
    return replace(
        artifacts,
        model=split_large(artifacts.model, read_header, limit=limit),
        draft=split_large(artifacts.draft, read_header, limit=limit),
    )


def make_labels(facts: Facts, plan: Plan) -> Mapping[str, str]:
    """Describe the build in image labels: no paths, no times, nothing of the machine."""
    assert facts.base is not None
    asked = facts.request.model_dump(
        mode="json", exclude_none=True, exclude={"model", "base", "outputs", "draft"}
    )
    record: dict[str, object] = {
        "schema": 1,
        "packager": facts.packager_version,
        "model": {
            "source": plan.model.source,
            "name": plan.model.name,
            "revision": plan.model.revision,
        },
        "request": asked,
        "base": facts.base.digest,
        "engine": f"{plan.container.engine} {plan.container.engine_version}".strip(),
        "tp_degree": plan.tp_degree,
        "precision": plan.precision,
        "shape": shape_of(plan),
    }
    if plan.draft is not None:
        record["draft"] = {
            "kind": plan.draft.kind,
            "speculative_tokens": plan.draft.speculative_tokens,
        }
    return {
        "org.opencontainers.image.title": plan.served_name,
        "org.opencontainers.image.base.digest": facts.base.digest,
        "dev.packager.version": facts.packager_version,
        "dev.packager.family": plan.container.family,
        "dev.packager.instance": plan.instance.name,
        "dev.packager.record": json.dumps(record, sort_keys=True, separators=(",", ":")),
    }


def make_record(
    assembled: Assembled, written: Written, transfer: Transfer, *, seconds: float
) -> BuildRecord:
    """Put down everything that is needed to repeat the build, and what it did."""
    facts, plan = assembled.planned.facts, assembled.planned.plan
    base = assembled.image.base
    return BuildRecord(
        packager_version=facts.packager_version,
        request=facts.request,
        model=RecordedModel(
            source=plan.model.source, name=plan.model.name, revision=plan.model.revision
        ),
        base=RecordedBase(
            reference=base.reference, digest=base.digest, platform=str(base.platform)
        ),
        family=plan.container.family,
        engine=plan.container.engine,
        engine_version=plan.container.engine_version,
        tp_degree=plan.tp_degree,
        served_name=plan.served_name,
        shape=shape_of(plan),
        created=assembled.image.created,
        digest=written.image.digest,
        layers=tuple(
            RecordedLayer(role=layer.role, digest=layer.digest, size=layer.size)
            for layer in written.layers
        ),
        images=tuple(
            RecordedImage(target=ref.target, name=ref.name, digest=ref.digest)
            for ref in written.refs
        ),
        findings=tuple(
            RecordedFinding(
                severity=found.severity, code=found.code, message=found.message, hint=found.hint
            )
            for found in (*plan.findings, *assembled.findings)
        ),
        transfer=transfer,
        seconds=round(seconds, 3),
    )


def shape_of(plan: Plan) -> dict[str, int]:
    """The planned shape as documents spell it."""
    return asdict(plan.shape)


def _planned(request: BuildRequest, tools: Tools, *, with_base: bool) -> Planned:
    facts = resolve(
        request,
        find_model=tools.find_model,
        find_instance=tools.find_instance,
        find_container=tools.find_container,
        find_base=tools.find_base if with_base else None,
        find_draft=tools.find_draft,
        known_draft=tools.known_draft,
    )
    family = tools.family(facts.container.family)
    plan = make_plan(facts, family, instances=tools.instances, rules=tools.rules)
    return Planned(facts=facts, plan=plan, recipe=make_recipe(plan, facts))
