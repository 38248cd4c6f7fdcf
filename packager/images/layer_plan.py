"""Grouping of files into layers.

Small files are bundled; each large file is a layer of its own, so that equal
shards are equal layers everywhere.  When there are many large files,
consecutive ones share a layer: engines stop at about 127 layers
(`max depth exceeded`), so base and ours together stay at 120.  How they are
grouped does not depend on the base, as long as that leaves room for 90.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from packager.core.errors import UsageError
from packager.core.image import Inline, Layer, LayerRole
from packager.core.model import ModelFile
from packager.core.serving import RenderedFile
from packager.core.units import MIB, decimal
from packager.images.balance import balanced_runs, runs_within
from packager.images.remote_layers import ROLE, content_digest
from packager.images.reshard import SPLIT_OVER
from packager.images.rootfs.placement import AS_NAMED, Placement
from packager.images.tar import TarEntry, make_tar

BUNDLE_BELOW = 1 * MIB  # smaller weight files are not worth a layer of their own
COMPILED_ALONE = 256 * MIB  # compilers leave many files; few of them are large
MAX_LAYERS = 120
WEIGHT_LAYERS = 90  # at most, so that bases of up to 26 layers leave the grouping alone
_RESERVED = 4  # bundles of the model and of its draft, configuration, one to spare


def model_layers(
    files: Sequence[ModelFile],
    *,
    base_layers: int,
    directory: str,
    placement: Placement = AS_NAMED,
) -> tuple[Layer, ...]:
    """Group a model's files into layers: weights first, then one bundle of all small files."""
    large, small = _by_size(files)
    room = min(WEIGHT_LAYERS, MAX_LAYERS - base_layers - _RESERVED)
    if large and room < 1:
        raise UsageError(
            f"the base image has {base_layers} layers, which leaves no room for weights",
            hint=f"use a base with at most {MAX_LAYERS - _RESERVED - 1} layers",
        )
    groups = [[file] for file in large]
    if len(large) > room:
        runs = balanced_runs([file.size for file in large], room)
        groups = [large[run.start : run.stop] for run in runs]
    layers = [_layer("weights", group, directory, placement) for group in groups]
    if small:
        layers.append(_layer("model", small, directory, placement))
    return tuple(layers)


def draft_layers(
    files: Sequence[ModelFile], *, directory: str, placement: Placement = AS_NAMED
) -> tuple[Layer, ...]:
    """Group a draft's files into layers: weights up to the size limit each, small files together.

    Drafts are small, and apart from the model's layers: another draft leaves those as they are.
    """
    large, small = _by_size(files)
    runs = runs_within([file.size for file in large], SPLIT_OVER)
    groups = [*(large[run.start : run.stop] for run in runs), small]
    return tuple(_layer("draft", group, directory, placement) for group in groups if group)


def adapter_layers(
    adapters: Mapping[str, Sequence[ModelFile]], placement: Placement = AS_NAMED
) -> tuple[Layer, ...]:
    """Make each adapter a layer of its own: another one leaves all others as they are."""
    return tuple(
        replace(
            _layer("adapter", files, directory, placement),
            created_by=f"packager: adapter {directory.rpartition('/')[2]} "
            f"({decimal(sum(file.size for file in files))})",
        )
        for directory, files in adapters.items()
    )


def compiled_layers(
    files: Sequence[ModelFile], *, directory: str, placement: Placement = AS_NAMED
) -> tuple[Layer, ...]:
    """Group compiled artifacts into layers: each large file alone, the rest together."""
    large = [file for file in files if file.size >= COMPILED_ALONE]
    small = [file for file in files if file.size < COMPILED_ALONE]
    groups = [*([file] for file in large), small]
    return tuple(_layer("compiled", group, directory, placement) for group in groups if group)


def _by_size(files: Sequence[ModelFile]) -> tuple[list[ModelFile], list[ModelFile]]:
    large = [file for file in files if file.role == "weights" and file.size >= BUNDLE_BELOW]
    return large, [file for file in files if file not in large]


def config_layer(files: Sequence[RenderedFile], placement: Placement = AS_NAMED) -> Layer:
    """The layer that changes most, and therefore comes last."""
    entries = [
        TarEntry(
            path=placement.path(file.path), content=Inline(file.data), executable=file.executable
        )
        for file in files
    ]
    return Layer(
        role="config",
        blob=make_tar(entries, placement.directories),
        created_by="packager: serving configuration",
        annotations={ROLE: "config"},
    )


def _layer(
    role: LayerRole, files: Sequence[ModelFile], directory: str, placement: Placement
) -> Layer:
    entries = [
        TarEntry(
            path=placement.path(f"{directory}/{file.path}"),
            content=file.content,
            executable=file.executable,
        )
        for file in files
    ]
    named = files[0].path if len(files) == 1 else f"{len(files)} files"
    size = decimal(sum(file.size for file in files))
    return Layer(
        role=role,
        blob=make_tar(entries, placement.directories),
        created_by=f"packager: {role} {named} ({size})",
        content=content_digest(files, directory, placement),
        annotations={ROLE: role},
    )
