"""Which file goes into which layer.

Small files are bundled; each large file is a layer of its own, so that equal
shards are equal layers everywhere.  When there are many large files,
consecutive ones share a layer: engines stop at about 127 layers
(`max depth exceeded`), so base and ours together stay at 120.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from packager.core.image import Inline, Layer, LayerRole
from packager.core.model import ModelFile
from packager.core.serving import RenderedFile
from packager.core.units import MIB, decimal
from packager.errors import UsageError
from packager.imaging.earlier import CONTENT, ROLE, content_digest
from packager.imaging.tar import Entry, make_tar

BUNDLE_BELOW = 1 * MIB  # smaller weight files are not worth a layer of their own
MAX_LAYERS = 120
_RESERVED = 4  # bundles of the model and of its draft, configuration, one to spare


def model_layers(
    files: Sequence[ModelFile], *, base_layers: int, directory: str
) -> tuple[Layer, ...]:
    """Lay out a model in `directory`: weight layers first, then one bundle of all that is small."""
    large, small = _by_size(files)
    room = MAX_LAYERS - base_layers - _RESERVED
    if large and room < 1:
        raise UsageError(
            f"the base image has {base_layers} layers, which leaves no room for weights",
            hint=f"use a base with at most {MAX_LAYERS - _RESERVED - 1} layers",
        )
    group = math.ceil(len(large) / room) if large else 1
    weights = [large[start : start + group] for start in range(0, len(large), group)]
    layers = [_layer("weights", group_files, directory) for group_files in weights]
    if small:
        layers.append(_layer("model", small, directory))
    return tuple(layers)


def draft_layers(files: Sequence[ModelFile], *, directory: str) -> tuple[Layer, ...]:
    """Lay out a draft: its weights together, the rest together.

    Drafts are small, and apart from the model's layers: another draft leaves those as they are.
    """
    large, small = _by_size(files)
    return tuple(_layer("draft", group, directory) for group in (large, small) if group)


def _by_size(files: Sequence[ModelFile]) -> tuple[list[ModelFile], list[ModelFile]]:
    large = [file for file in files if file.role == "weights" and file.size >= BUNDLE_BELOW]
    return large, [file for file in files if file not in large]


def config_layer(files: Sequence[RenderedFile]) -> Layer:
    """The layer that changes most, and therefore goes last."""
    entries = [
        Entry(path=file.path, content=Inline(file.data), executable=file.executable)
        for file in files
    ]
    return Layer(
        role="config",
        blob=make_tar(entries),
        created_by="packager: serving configuration",
        annotations={ROLE: "config"},
    )


def _layer(role: LayerRole, files: Sequence[ModelFile], directory: str) -> Layer:
    entries = [
        Entry(path=f"{directory}/{file.path}", content=file.content, executable=file.executable)
        for file in files
    ]
    named = files[0].path if len(files) == 1 else f"{len(files)} files"
    size = decimal(sum(file.size for file in files))
    content = content_digest(files, directory)
    return Layer(
        role=role,
        blob=make_tar(entries),
        created_by=f"packager: {role} {named} ({size})",
        annotations={ROLE: role, **({CONTENT: content} if content else {})},
    )
