"""The build record and the labels of an image: enough to repeat the build."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from packager.core.adapters import WEIGHTS, Adapter
from packager.core.facts import Facts
from packager.core.image import BaseImage, Written
from packager.core.measurement import MeasuredRun
from packager.core.plan import Plan
from packager.core.quality import limits_of
from packager.core.record import (
    BuildRecord,
    RecordedAdapter,
    RecordedBase,
    RecordedDraft,
    RecordedFinding,
    RecordedImage,
    RecordedLayer,
    RecordedModel,
    RecordedRuntime,
    RecordedStep,
    RecordedTree,
    Transfer,
)
from packager.core.request import BuildRequest
from packager.core.split import Split
from packager.core.startup import StartedVariant, StartupPrediction
from packager.core.techniques import Draft
from packager.estimate.performance.measured import measured_starts
from packager.estimate.performance.startup import bandwidth_of, image_of_plan, predict_startup
from packager.images.pull_hints import PulledLayer, packed_of
from packager.pipeline.planning.health import start_period_s
from packager.pipeline.stages import Assembled, Planned

# Fields of a request that decide whether an image is made, and do not change its content.
MEASURING = frozenset(
    ("evaluate", "evaluate_samples", "evaluate_tokens", "evaluate_seed")
    + ("max_kld", "min_top1", "max_ppl_increase")
)

# Fields that decide where steps run, and nothing in the image beside their results.
# On which machine: no record repeats them.
PLACES = frozenset(("executor", "address", "trust_roots"))
RUNNING = frozenset(("gpus", "threads", *PLACES))
# What is served under one name is one image, whether the name was asked for or is the model's,
# and the plain form of an image is the same with another form beside it or without.
_UNLABELLED = {"model", "base", "outputs", "draft", "served_name", "layer_format"}
_UNLABELLED |= {"base_files", "adapters", "adapters_dir", "merge_adapter", *MEASURING, *RUNNING}


def make_labels(facts: Facts, plan: Plan) -> Mapping[str, str]:
    """Describe the build in image labels, without paths, times or traits of the machine."""
    assert facts.base is not None
    asked = facts.request.model_dump(mode="json", exclude_none=True, exclude=_UNLABELLED)
    record: dict[str, object] = {
        "schema": 1,
        "packager": facts.packager_version,
        "model": {
            "source": plan.model.source,
            "name": plan.model.published_name or plan.served_name,
            "revision": plan.model.revision,
        },
        "request": asked,
        "base": facts.base.digest,
        "engine": f"{plan.container.engine} {plan.container.engine_version}".strip(),
        "tp_degree": plan.tp_degree,
        "precision": plan.precision,
        "shape": asdict(plan.shape),
    }
    if plan.split != Split(tp_degree=plan.tp_degree):
        record["split"] = plan.split.words
    if plan.draft is not None:
        record["draft"] = draft_of(plan.draft)
    if facts.adapters:
        record["adapters"] = list(_served_entries(facts, plan))
    if facts.merged is not None:
        record["merged_adapter"] = adapter_entry(facts.merged)
    return {
        "org.opencontainers.image.title": plan.served_name,
        "org.opencontainers.image.base.digest": facts.base.digest,
        "dev.packager.version": facts.packager_version,
        "dev.packager.family": plan.container.family,
        "dev.packager.instance": plan.instance.name,
        "dev.packager.record": json.dumps(record, sort_keys=True, separators=(",", ":")),
    }


def make_record(
    assembled: Assembled,
    written: Written,
    transfer: Transfer,
    *,
    seconds: float,
    measured: Sequence[MeasuredRun] = (),
) -> BuildRecord:
    """Record the inputs needed to repeat the build, and its results.

    Predicted cold starts are corrected by `measured` ones of the plan.
    """
    facts, plan = assembled.planned.facts, assembled.planned.plan
    base = assembled.image.base
    starts = measured_starts(plan, measured, known_as=(facts.request.model,))
    return BuildRecord(
        packager_version=facts.packager_version,
        request=repeatable_request(assembled),
        model=RecordedModel(
            source=plan.model.source, name=plan.model.name, revision=plan.model.revision
        ),
        draft=RecordedDraft.model_validate(draft_of(plan.draft)) if plan.draft else None,
        adapters=tuple(RecordedAdapter.model_validate(one) for one in _served_entries(facts, plan)),
        merged_adapter=(
            RecordedAdapter.model_validate(adapter_entry(facts.merged)) if facts.merged else None
        ),
        base=RecordedBase(
            reference=base.reference, digest=base.digest, platform=str(base.platform)
        ),
        family=plan.container.family,
        engine=plan.container.engine,
        engine_version=plan.container.engine_version,
        tp_degree=plan.tp_degree,
        served_name=plan.served_name,
        shape=asdict(plan.shape),
        created=assembled.image.created,
        digest=written.image.digest if written.refs else written.trees[0].digest,
        plain_digest=written.image.plain.digest if written.image.index else None,
        config_digest=written.image.config_descriptor.digest if written.refs else "",
        layers=tuple(
            RecordedLayer(
                role=layer.role,
                digest=layer.digest,
                size=layer.size,
                believed=layer.believed or (layer.twin.believed if layer.twin else "") or None,
                erofs=layer.twin.digest if layer.twin else None,
            )
            for layer in written.layers
        ),
        images=tuple(
            RecordedImage(target=ref.target, name=ref.name, digest=ref.digest)
            for ref in written.refs
        ),
        trees=tuple(_recorded_trees(assembled, written)),
        findings=tuple(
            RecordedFinding(
                severity=found.severity, code=found.code, message=found.message, hint=found.hint
            )
            for found in (*plan.findings, *assembled.findings)
        ),
        steps=tuple(_recorded_steps(assembled)),
        runtime=runtime_of(plan),
        quality=assembled.quality,
        startup=_startup_of(plan, base, written, starts) if written.refs else None,
        transfer=transfer,
        seconds=round(seconds, 3),
    )


def repeatable_request(assembled: Assembled) -> BuildRequest:
    """Return the request with resolved choices: devices, and limits of quality."""
    changes: dict[str, Any] = dict.fromkeys(PLACES)
    if assembled.quality is not None:  # another version may have other defaults
        limits = limits_of(assembled.planned.facts.request)
        changes |= {"max_kld": limits.max_kld, "min_top1": limits.min_top1}
    return with_devices_pinned(assembled.planned).model_copy(update=changes)


def with_devices_pinned(planned: Planned) -> BuildRequest:
    """Return the request with what quantizing got: another machine would choose otherwise."""
    request, facts = planned.facts.request, planned.facts
    quantizing = [step for step in planned.recipe.steps if step.gives == "model"]
    changes: dict[str, int] = {}
    if any(step.gpu_use.most for step in quantizing):
        changes["gpus"] = facts.gpus
    if facts.threads > 1 and quantizing:
        changes["threads"] = facts.threads
    return request.model_copy(update=changes) if changes else request


def draft_of(draft: Draft) -> dict[str, str | int]:
    """Return the draft's pinned reference and settings as documents spell them. No local paths."""
    pinned = draft.ref
    found: dict[str, str | int] = {
        "kind": draft.kind,
        "version": draft.version,
        "speculative_tokens": draft.speculative_tokens,
        "source": pinned.source if pinned else "",
        "name": pinned.name if pinned else "",
        "revision": pinned.revision if pinned else "",
        "license": draft.license,
    }
    return {key: value for key, value in found.items() if value}


def _served_entries(facts: Facts, plan: Plan) -> Iterator[dict[str, str | int]]:
    """Yield the entries of adapters beside the weights, in the order of their layers."""
    served = plan.adapters.adapters if plan.adapters else ()
    places = {one.name: one.directory for one in served}
    for adapter in facts.adapters:
        yield adapter_entry(adapter) | {"directory": places[adapter.name]}


def adapter_entry(adapter: Adapter) -> dict[str, str | int]:
    """Return an adapter's pinned reference and rank as documents spell them. No local paths."""
    pinned = adapter.ref
    weights = next((file.sha256 for file in adapter.files if file.path == WEIGHTS), "")
    found: dict[str, str | int] = {
        "name": adapter.name,
        "source": pinned.source,
        "model": pinned.name,
        "revision": pinned.revision,
        "rank": adapter.max_rank,
        "sha256": weights,
        "trained_on": adapter.base,
    }
    return {key: value for key, value in found.items() if value}


def _recorded_trees(assembled: Assembled, written: Written) -> Iterator[RecordedTree]:
    tree = assembled.image.tree
    for ref in written.trees if tree is not None else ():
        assert tree is not None
        yield RecordedTree(
            target=ref.target,
            name=ref.name,
            digest=ref.digest,
            files=len(tree.files),
            size=sum(file.size for file in tree.files),
            image=tree.about["container"]["image"],
            env=tree.about["container"]["env"],
            mounts={one["container"]: one["tree"] for one in tree.about["mounts"]},
        )


def _recorded_steps(assembled: Assembled) -> Iterator[RecordedStep]:
    for step in assembled.planned.recipe.steps:
        outcome = assembled.artifacts.outcomes[step.name]
        yield RecordedStep(
            name=step.name,
            tool=step.tool,
            key=outcome.key,
            reused=outcome.reused,
            seconds=outcome.result.seconds,
            peak_memory_bytes=outcome.result.peak_memory_bytes,
            versions=dict(outcome.result.versions),
            details=dict(outcome.result.details),
        )


def _startup_of(
    plan: Plan, base: BaseImage, written: Written, starts: tuple[StartedVariant, ...]
) -> StartupPrediction:
    """Predict cold starts of the image as it is: the base's layers with ours."""
    layers = [
        PulledLayer(digest=one.digest, size=one.size, packed=packed_of(one.media_type))
        for one in (*base.layers, *written.layers)
    ]
    return predict_startup(
        image_of_plan(plan, layers),
        bandwidth_bytes_s=bandwidth_of(plan.instance),
        measured=starts,
    )


def runtime_of(plan: Plan) -> RecordedRuntime:
    """Record the settings that a deployment must pass to the container."""
    container, stopping = plan.container, plan.stopping
    health_path = container.traits.health_path
    return RecordedRuntime(
        cuda=container.cuda,
        least_driver=container.least_driver,
        inference_ami=container.inference_ami,
        drain_s=stopping.drain_s if stopping else None,
        grace_s=stopping.grace_s if stopping else None,
        health_path=health_path,
        start_period_s=start_period_s(plan) if health_path else None,
    )
