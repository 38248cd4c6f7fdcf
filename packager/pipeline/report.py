"""Report of a build, as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import Any

from packager.core.findings import FILES_LEFT_OUT, Finding
from packager.core.image import BY_CACHE, TreeFile
from packager.core.record import BuildRecord
from packager.core.reports.report import Lines, Part, Report, Section, plain_table
from packager.core.reports.text import finding_lines, table_lines
from packager.core.serving import MOUNTED_MODEL_DIR, RenderedFile
from packager.core.units import counted, decimal
from packager.images.assemble import is_for_mount
from packager.optimize.evaluate.report import quality_lines
from packager.optimize.steps.report import forecast_documents, forecast_sentences, ran_lines
from packager.pipeline.report_plan import plan_document
from packager.pipeline.stages import Assembled


def summary_lines(record: BuildRecord) -> list[str]:
    """Return the layers by role, the bytes read and sent, and the time it took."""
    rows = []
    for is_base, group in groupby(record.layers, key=lambda layer: layer.role == "base"):
        layers = tuple(group)
        if is_base:
            total = decimal(sum(layer.size for layer in layers))
            rows.append((f"base ({counted(len(layers), 'layer')})", total, record.base.digest[:19]))
        else:
            rows += [(layer.role, decimal(layer.size), layer.digest[:19]) for layer in layers]
    return [
        *_warning_lines(record),
        *ran_lines(record.steps),
        *(quality_lines(record.quality) if record.quality else ()),
        *(table_lines(("layer", "size", "digest"), rows) if rows else ()),
        *_tree_lines(record),
        *_believed_lines(record),
        _moved_line(record),
    ]


def brief_lines(record: BuildRecord) -> list[str]:
    """Return the warnings, files left out, bytes read and sent, and duration."""
    return [*_warning_lines(record), _moved_line(record)]


def _warning_lines(record: BuildRecord) -> list[str]:
    """Return the warnings, and what of the model is not in the image."""
    return finding_lines(
        Finding(
            "warning" if found.severity == "warning" else "note",
            found.code,
            found.message,
            found.hint,
        )
        for found in record.findings
        if found.severity == "warning" or found.code == FILES_LEFT_OUT
    )


def _moved_line(record: BuildRecord) -> str:
    moved = record.transfer
    layers = f"{moved.layers_known} of {len(record.layers)} layers known beforehand, "
    if record.trees:  # files are counted with the layers, and some are in both
        total = moved.layers_known + moved.layers_streamed
        layers = f"{moved.layers_known} of {total} layers and files known beforehand, "
    return (
        f"read {decimal(moved.bytes_read)}, sent {decimal(moved.bytes_sent)}, "
        f"{layers}{record.seconds:.1f} s"
    )


def _tree_lines(record: BuildRecord) -> list[str]:
    """Return the mounts of each output that is a tree."""
    rows = []
    for tree in record.trees:
        first, *more = tree.mounts or {MOUNTED_MODEL_DIR: "."}
        rows.append((f"{tree.files} files", decimal(tree.size), tree.name, first))
        rows += [("", "", f"{tree.name}/{tree.mounts[place]}", place) for place in more]
    return table_lines(("tree", "size", "mount this", "at"), rows) if rows else []


def _believed_lines(record: BuildRecord) -> list[str]:
    """Return a line for each layer whose digest was proven without reading it."""
    return [
        f"not read, {_proof(layer.believed)}: {layer.role} {decimal(layer.size)} {layer.digest}"
        for layer in record.layers
        if layer.believed
    ]


def _proof(believed: str) -> str:
    if believed == BY_CACHE:
        return "known from the artifact cache"
    return f"believed by a claim of key {believed}"


def dry_run_document(assembled: Assembled) -> dict[str, Any]:
    """Return everything that a build would write, as JSON."""
    image = assembled.image
    return {
        "plan": plan_document(assembled.planned.plan),
        "steps": [step.name for step in assembled.planned.recipe.steps],
        "forecasts": forecast_documents(assembled.planned.forecasts),
        "base": {"reference": image.base.reference, "digest": image.base.digest},
        "files": _file_texts(assembled, for_mount=False),
        "files_for_mount": _file_texts(assembled, for_mount=True),
        "mount": dict(_mounted(assembled)),
        "runtime": {
            **{name: list(value) for name, value in _commands(assembled)},
            "env": dict(assembled.serving.env),
            "labels": dict(image.runtime.labels),
            "port": image.runtime.port,
            "health": asdict(image.runtime.health) if image.runtime.health else None,
        },
        "layers": [
            {"role": layer.role, "size": layer.size, "digest": layer.digest or None}
            for layer in image.layers
        ],
        "tree": [
            {"path": file.path, "size": file.size, "role": file.role} for file in _tree(assembled)
        ],
        "left_out": dict(assembled.planned.facts.model.left_out),
        "shape": asdict(assembled.planned.plan.shape),
    }


def dry_run_report(assembled: Assembled) -> Report:
    """Return everything that a build would write: steps, layers, files and environment."""
    image, planned = assembled.image, assembled.planned
    steps = tuple(f"step {said}" for said in forecast_sentences(planned.forecasts))
    if steps:
        steps += ("layers are those of the model as it is now, before the steps",)
    layers = [
        (layer.role, decimal(layer.size), layer.created_by or layer.digest[:19])
        for layer in image.layers
    ]
    files = [(file.path, decimal(file.size), file.role) for file in _tree(assembled)]
    tables: list[Part] = []
    if layers or not files:
        tables.append(plain_table(("layer", "size", "what"), layers))
    if files:
        tables.append(plain_table(("file of the tree", "size", "role"), files))
    rendered = []
    for number, file in enumerate(assembled.serving.files):
        is_code = file.path.endswith(".py")
        for_mount = " (for the mount, not in the image)" if _for_mount(assembled, file) else ""
        text = "" if is_code else file.data.decode(errors="replace").rstrip()
        rendered.append(
            Section(
                key=f"file{number}",
                title=file.path,
                parts=(
                    Lines(
                        (f"--- {file.path} ({decimal(len(file.data))})",)
                        if is_code
                        else (f"--- {file.path}{for_mount}", *text.split("\n")),
                        "",
                        is_exact=True,
                    ),
                ),
            )
        )
    environment = [
        "--- environment",
        *(f"{name}={value}" for name, value in assembled.serving.env.items()),
        *(f"left out {path}: {why}" for path, why in planned.facts.model.left_out.items()),
    ]
    mounted = _mounted(assembled)
    mounts = Section(
        key="mounts",
        title="What to mount, not in the image",
        parts=(
            Lines(("--- what to mount, not in the image",)),
            plain_table(("file", "from"), mounted),
        ),
    )
    return Report(
        kind="Build, not done",
        title=planned.plan.served_name,
        sections=(
            Section(key="steps", title="Steps", parts=(Lines(steps, ""),) if steps else ()),
            Section(key="layers", title="Layers", parts=tuple(tables)),
            *rendered,
            *((mounts,) if mounted else ()),
            Section(
                key="environment",
                title="Environment",
                parts=(Lines(tuple(environment), "", is_exact=True),),
            ),
        ),
    )


def _tree(assembled: Assembled) -> tuple[TreeFile, ...]:
    """Return the files of the tree that is written; () where only images are."""
    tree = assembled.image.tree
    return tree.files if tree is not None else ()


def _file_texts(assembled: Assembled, *, for_mount: bool) -> dict[str, str]:
    return {
        file.path: file.data.decode(errors="replace")
        for file in assembled.serving.files
        if _for_mount(assembled, file) == for_mount
    }


def _mounted(assembled: Assembled) -> list[tuple[str, str]]:
    """Return the mounts that the container needs at its start, with each file's source."""
    if assembled.planned.plan.weights == "baked" or assembled.image.tree is not None:
        return []
    facts, serving = assembled.planned.facts, assembled.serving
    files = {f"{serving.model_dir}/{file.path}": "model" for file in facts.model.files}
    if facts.draft is not None:
        files |= {f"{serving.draft_dir}/{file.path}": "draft" for file in facts.draft.files}
    files |= {file.path: "rendered" for file in serving.files if _for_mount(assembled, file)}
    return sorted(files.items())


def _for_mount(assembled: Assembled, file: RenderedFile) -> bool:
    return is_for_mount(file, assembled.serving, assembled.planned.plan.weights)


def _commands(assembled: Assembled) -> list[tuple[str, tuple[str, ...]]]:
    serving = assembled.serving
    return [("entrypoint", serving.entrypoint), ("cmd", serving.cmd)]
