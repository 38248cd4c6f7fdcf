"""A build's files as one tree, for engines that mount a directory instead of an image."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected, UsageError
from packager.core.findings import errors_in
from packager.core.image import Inline, ModelTree, TreeFile
from packager.core.plan import Plan
from packager.core.serving import (
    ADAPTERS_DIR,
    COMPILED_DIR,
    MODEL_DIR,
    MOUNTED_MODEL_DIR,
    SERVING_DIR,
    RenderedFile,
    ServingConfig,
)
from packager.core.training import RESULT as TRAINING_RESULT
from packager.core.training import TrainingReport
from packager.core.tree_manifest import MANIFEST
from packager.images.oci import scratch
from packager.images.stored import RECORD
from packager.optimize.drafts.medusa import with_base_model
from packager.pipeline.finishing import FINISHES
from packager.pipeline.record import make_labels
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Finished, Planned

# Directories of a container, and where their files are in the tree.
DIRECTORIES = {
    MOUNTED_MODEL_DIR: ".",
    COMPILED_DIR: "compiled",
    SERVING_DIR: "serving",
    ADAPTERS_DIR: "adapters",
}


def plan_of_tree(plan: Plan, services: BuildServices) -> Plan:
    """Return the plan for an engine that mounts the tree; the image's own, if that mounts it, too.

    Raises where the image's compiled files would not work in the tree, and `PlanRejected` where the
    engine cannot serve mounted files.
    """
    if plan.one_mount:
        return plan
    if plan.compiler:
        raise UsageError(
            "compiled files are made for one place of the model: an image with baked weights and "
            "a tree cannot share them",
            hint="add --weights mounted, or build each output with a command of its own",
        )
    adapters = plan.adapters and plan.adapters.moved(MODEL_DIR, MOUNTED_MODEL_DIR)
    mounted = replace(plan, weights="mounted", one_mount=True, adapters=adapters)
    found = tuple(services.family(plan.container.family).check(mounted))
    if errors_in(found):
        raise PlanRejected(found)
    return mounted


def make_tree(
    planned: Planned,
    artifacts: Artifacts,
    services: BuildServices,
    *,
    plan: Plan,
) -> ModelTree:
    """Return the tree of finished steps, with its container's settings.

    `artifacts` are the recipe's results before they are finished for an image.
    """
    finished = Finished(planned=replace(planned, plan=plan), artifacts=artifacts)
    for name in planned.recipe.finishes:
        if name != "evaluate":
            finished = FINISHES[name](finished, services, None)
    artifacts = finished.artifacts
    serving = services.family(plan.container.family).render(plan, artifacts)
    files = {file.path: file for file in _files(artifacts, serving)}
    files |= {file.path: file for file in map(_rendered, serving.files)}
    files |= {file.path: file for file in _medusa(planned, serving)}
    trained = services.read_training(planned.facts.draft) if planned.facts.draft else None
    if trained is not None:
        evaluation = _evaluation(trained, serving)
        files.setdefault(evaluation.path, evaluation)
    files.pop(MANIFEST, None)  # of a model that is a tree itself
    used = {file.path.partition("/")[0] for file in files.values() if "/" in file.path}
    mounts = [
        {"tree": tree, "container": directory}
        for directory, tree in DIRECTORIES.items()
        if tree == "." or (tree in used and _is_ours(tree, files.values()))
    ]
    container = {
        "image": _image(plan),
        "family": plan.container.family,
        "engine": plan.container.engine,
        "engine_version": plan.container.engine_version,
        "entrypoint": serving.entrypoint,
        "cmd": serving.cmd,
        "env": dict(serving.env),
        "port": serving.port,
    }
    build = _build(planned, plan)
    if trained is not None:
        build["draft_training"] = trained.model_dump(mode="json")
    said = {"mounts": mounts, "container": container, "build": build}
    ordered = tuple(sorted(files.values(), key=lambda file: file.path))
    return ModelTree(files=ordered, about=said)


def _build(planned: Planned, plan: Plan) -> dict[str, Any]:
    """Return the record of the build, without the options that only affect images."""
    facts = planned.facts
    unused = {"weights": "mounted", "compression": None, "layer_order": None, "base_files": None}
    base = facts.base if plan.needs_base else scratch(plan.platform)
    written = replace(facts, base=base, request=facts.request.model_copy(update=unused))
    found: dict[str, Any] = json.loads(make_labels(written, plan)[RECORD])
    return found


def _image(plan: Plan) -> str:
    """Return the image that can serve the tree; "" where none is known."""
    is_none = plan.base == scratch(plan.platform).reference
    return plan.container.default_base if is_none else plan.base


def _files(artifacts: Artifacts, serving: ServingConfig) -> Iterator[TreeFile]:
    for directory, files, role in (
        (serving.model_dir, artifacts.model, None),
        (serving.draft_dir, artifacts.draft, "draft"),
        (COMPILED_DIR, artifacts.compiled, "compiled"),
        *((place, found, "other") for place, found in artifacts.adapters.items()),
    ):
        for file in files:
            yield TreeFile(
                path=_in_tree(f"{directory}/{file.path}"),
                role=role or file.role,  # type: ignore[arg-type]
                content=file.content,
                executable=file.executable,
                sha256=file.sha256,
            )


def _rendered(file: RenderedFile) -> TreeFile:
    path = _in_tree(file.path)
    return TreeFile(
        path=path,
        role="config" if file.path.startswith(f"{MOUNTED_MODEL_DIR}/") else "serving",
        content=Inline(file.data),
        executable=file.executable,
    )


def _medusa(planned: Planned, serving: ServingConfig) -> Iterator[TreeFile]:
    """Yield the heads' own config.json where they are served as the model, with its new place."""
    draft = planned.facts.draft
    if draft is None or planned.plan.draft is None or planned.plan.draft.kind != "medusa":
        return
    if serving.draft_dir != MOUNTED_MODEL_DIR:
        return
    data = with_base_model(draft.config, f"{serving.model_dir}/")
    if data is not None:
        yield TreeFile(path="config.json", role="config", content=Inline(data))


def _evaluation(trained: TrainingReport, serving: ServingConfig) -> TreeFile:
    """Return the head's evaluation, as a file beside it."""
    data = f"{json.dumps(trained.model_dump(mode='json'), indent=1)}\n".encode()
    place = _in_tree(f"{serving.draft_dir}/{TRAINING_RESULT}")
    return TreeFile(path=place, role="draft", content=Inline(data))


def _in_tree(path: str) -> str:
    """Return where a file of the container is in the tree."""
    for directory, place in DIRECTORIES.items():
        if path.startswith(f"{directory}/"):
            inside = path.removeprefix(f"{directory}/")
            return inside if place == "." else f"{place}/{inside}"
    raise AssertionError(f"{path} is in no directory of a tree")


def _is_ours(directory: str, files: Iterable[TreeFile]) -> bool:
    wanted = {"compiled": "compiled", "serving": "serving", "adapters": "other"}[directory]
    found = (file for file in files if file.path.startswith(f"{directory}/"))
    return any(file.role == wanted for file in found)
