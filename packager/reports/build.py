"""What a build did, for people."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import Any

from packager.build.stages import Assembled
from packager.core.findings import Finding
from packager.core.record import BuildRecord
from packager.core.serving import RenderedFile
from packager.core.text import joined
from packager.core.units import decimal
from packager.imaging.assemble import is_for_mount
from packager.reports.plan import plan_document
from packager.reports.quality import quality_lines
from packager.reports.steps import forecast_documents, forecast_sentences, ran_lines
from packager.reports.text import finding_lines, table_lines


def summary_lines(record: BuildRecord) -> list[str]:
    """Layers by role, what was read and sent, how long it took."""
    rows = []
    for is_base, group in groupby(record.layers, key=lambda layer: layer.role == "base"):
        layers = tuple(group)
        if is_base:
            total = decimal(sum(layer.size for layer in layers))
            rows.append((f"base ({len(layers)} layers)", total, record.base.digest[:19]))
        else:
            rows += [(layer.role, decimal(layer.size), layer.digest[:19]) for layer in layers]
    moved = record.transfer
    warnings = [
        Finding("warning", found.code, found.message, found.hint)
        for found in record.findings
        if found.severity == "warning"
    ]
    return [
        *finding_lines(warnings),
        *ran_lines(record.steps),
        *(quality_lines(record.quality) if record.quality else ()),
        *table_lines(("layer", "size", "digest"), rows),
        *_believed_lines(record),
        f"read {decimal(moved.bytes_read)}, sent {decimal(moved.bytes_sent)}, "
        f"{moved.layers_known} of {len(record.layers)} layers known beforehand, "
        f"{record.seconds:.1f} s",
    ]


def _believed_lines(record: BuildRecord) -> list[str]:
    """Name every layer that a claim spared reading, whole: somebody may have to look it up."""
    return [
        f"not read, believed by a claim of key {layer.believed}: "
        f"{layer.role} {decimal(layer.size)} {layer.digest}"
        for layer in record.layers
        if layer.believed
    ]


def dry_run_document(assembled: Assembled) -> dict[str, Any]:
    """Everything a build would write, as JSON."""
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
        },
        "layers": [
            {"role": layer.role, "size": layer.size, "digest": layer.digest or None}
            for layer in image.layers
        ],
        "left_out": dict(assembled.planned.facts.model.left_out),
        "shape": asdict(assembled.planned.plan.shape),
    }


def dry_run_text(assembled: Assembled) -> str:
    """Everything a build would write, as text."""
    image = assembled.image
    lines = [f"step {said}" for said in forecast_sentences(assembled.planned.forecasts)]
    if lines:
        lines += ["layers are those of the model as it is now, before the steps", ""]
    lines += table_lines(
        ("layer", "size", "what"),
        [
            (layer.role, decimal(layer.size), layer.created_by or layer.digest[:19])
            for layer in image.layers
        ],
    )
    for file in assembled.serving.files:
        if file.path.endswith(".py"):
            lines += ["", f"--- {file.path} ({decimal(len(file.data))})"]
            continue
        where = " (for the mount, not in the image)" if _for_mount(assembled, file) else ""
        text = file.data.decode(errors="replace").rstrip()
        lines += ["", f"--- {file.path}{where}", *text.split("\n")]
    if mounted := _mounted(assembled):
        lines += [
            "",
            "--- what to mount, not in the image",
            *table_lines(("file", "from"), mounted),
        ]
    lines += ["", "--- environment"]
    lines += [f"{name}={value}" for name, value in assembled.serving.env.items()]
    for path, reason in assembled.planned.facts.model.left_out.items():
        lines.append(f"left out {path}: {reason}")
    return joined(lines)


def _file_texts(assembled: Assembled, *, for_mount: bool) -> dict[str, str]:
    return {
        file.path: file.data.decode(errors="replace")
        for file in assembled.serving.files
        if _for_mount(assembled, file) == for_mount
    }


def _mounted(assembled: Assembled) -> list[tuple[str, str]]:
    """Say what must lie where when the container starts, and where each file comes from."""
    if assembled.planned.plan.weights == "baked":
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
