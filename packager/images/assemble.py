"""Artifacts and serving configuration to an image, without reading a byte of weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from packager.core.artifact import Artifacts
from packager.core.errors import UsageError
from packager.core.findings import Finding
from packager.core.image import (
    BaseImage,
    Compression,
    HealthCheck,
    ImageSpec,
    Layer,
    LayerOrder,
    RuntimeConfig,
)
from packager.core.model import ModelFile
from packager.core.serving import COMPILED_DIR, RenderedFile, ServingConfig
from packager.core.units import decimal
from packager.images.layer_plan import (
    MAX_LAYERS,
    adapter_layers,
    compiled_layers,
    config_layer,
    draft_layers,
    model_layers,
)
from packager.images.oci import check_layer_count
from packager.images.rootfs.placement import AS_NAMED, PlacedFiles, Placement, place_files

if TYPE_CHECKING:
    from packager.images.rootfs.tree import FileTree

_RECORD = "dev.packager.record"  # a label of every image that packager made


def assemble_image(
    base: BaseImage,
    artifacts: Artifacts,
    serving: ServingConfig,
    *,
    labels: Mapping[str, str],
    created: str,
    health: HealthCheck | None = None,
    weights: Literal["baked", "mounted"] = "baked",
    order: LayerOrder = "base-first",
    compression: Compression = "none",
    placement: Placement = AS_NAMED,
) -> ImageSpec:
    """Assemble the image.

    Order the layers of base, weights, compiled artifacts, draft, adapters and configuration.

    The layers that change most come last.  With `weights-first` the model and its draft are below
    the base: a node keeps them when the base changes.

    A file of the model that our configuration also writes is left out, so
    that layers stay disjoint and their order cannot matter.  With mounted
    weights the image holds nothing below the mounts: it would be shadowed.
    """
    files = files_of_image(artifacts, serving, weights)
    lower = placement.below if order == "weights-first" else placement
    compiled = compiled_layers(files.compiled, directory=COMPILED_DIR, placement=placement)
    drafted = draft_layers(files.draft, directory=serving.draft_dir, placement=lower)
    adapted = adapter_layers(files.adapters, placement)
    besides = len(base.layers) + len(compiled) + len(adapted) + max(0, len(drafted) - 2)
    modelled = model_layers(
        files.model, base_layers=besides, directory=serving.model_dir, placement=lower
    )
    config = tuple(config_layer(group, placement) for group in _config_groups(files) if group)
    if order == "weights-first":
        _refuse_covered(base)
        below, above = (*modelled, *drafted), (*compiled, *adapted, *config)
    else:
        below, above = (), (*modelled, *compiled, *drafted, *adapted, *config)
    image = ImageSpec(
        base=base,
        layers=(*_packed(below, compression), *base.layers, *_packed(above, compression)),
        runtime=RuntimeConfig(
            entrypoint=serving.entrypoint,
            cmd=serving.cmd,
            env=serving.env,
            labels=labels,
            port=serving.port,
            health=health,
        ),
        created=created,
    )
    check_layer_count(image, MAX_LAYERS)
    return image


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFiles:
    """The files that an image adds to its base, each relative to its own directory."""

    model: tuple[ModelFile, ...]
    draft: tuple[ModelFile, ...]
    compiled: tuple[ModelFile, ...]
    adapters: Mapping[str, tuple[ModelFile, ...]]  # by their directories
    config: tuple[RenderedFile, ...]  # by absolute paths


def files_of_image(
    artifacts: Artifacts, serving: ServingConfig, weights: Literal["baked", "mounted"]
) -> ImageFiles:
    """Return what is baked into the image."""
    config = tuple(file for file in serving.files if not is_for_mount(file, serving, weights))
    ours = {file.path for file in config}
    is_baked = weights == "baked"
    return ImageFiles(
        model=_without(artifacts.model, serving.model_dir, ours) if is_baked else (),
        draft=_without(artifacts.draft, serving.draft_dir, ours) if is_baked else (),
        compiled=artifacts.compiled,
        adapters=artifacts.adapters,
        config=config,
    )


def place_image(
    base: BaseImage,
    tree: FileTree,
    artifacts: Artifacts,
    serving: ServingConfig,
    *,
    weights: Literal["baked", "mounted"] = "baked",
    order: LayerOrder = "base-first",
) -> PlacedFiles:
    """Return where the image's files go over the base's, and what forbids it."""
    files = files_of_image(artifacts, serving, weights)
    kinds = (
        (serving.model_dir, files.model),
        (serving.draft_dir, files.draft),
        (COMPILED_DIR, files.compiled),
    )
    adapted = [f"{place}/{file.path}" for place, found in files.adapters.items() for file in found]
    model, draft, compiled = (
        [f"{directory}/{file.path}" for file in found] for directory, found in kinds
    )
    return place_files(
        base,
        tree,
        [*model, *draft, *compiled, *adapted, *(file.path for file in files.config)],
        own=[*(directory for directory, found in kinds if found), *files.adapters],
        below=[*model, *draft] if order == "weights-first" else [],
    )


def _config_groups(files: ImageFiles) -> Iterator[tuple[RenderedFile, ...]]:
    """Yield the files of each layer of configuration; with adapters, programs are one of their own.

    Another adapter changes the server's command, and not the programs beside it.
    """
    if not files.adapters:
        yield files.config
        return
    programs = tuple(file for file in files.config if file.path.endswith(".py"))
    yield programs
    yield tuple(file for file in files.config if file not in programs)


def assemble_nothing(base: BaseImage, created: str) -> ImageSpec:
    """Return an image without layers, for builds whose outputs are trees alone."""
    return ImageSpec(base=base, layers=(), runtime=RuntimeConfig(), created=created)


def is_for_mount(
    file: RenderedFile, serving: ServingConfig, weights: Literal["baked", "mounted"]
) -> bool:
    """Return whether a rendered file belongs beside mounted weights instead of into the image."""
    mounts = (f"{serving.model_dir}/", f"{serving.draft_dir}/")
    return weights == "mounted" and file.path.startswith(mounts)


def _without(files: Iterable[ModelFile], directory: str, ours: set[str]) -> tuple[ModelFile, ...]:
    return tuple(file for file in files if f"{directory}/{file.path}" not in ours)


def check_layers(image: ImageSpec, limit: int) -> Iterable[Finding]:
    """Warn of our layers above the requested size: a registry may refuse them."""
    for layer in image.layers:
        if layer.role != "base" and layer.blob.size > limit:
            yield Finding(
                "warning",
                "layer-over-size",
                f"a layer of {decimal(layer.blob.size)} is over --max-layer-size "
                f"{decimal(limit)}: {layer.created_by}",
                "tensors are not split, and many shards share layers: ask for larger layers",
            )


def _packed(layers: Iterable[Layer], compression: Compression) -> tuple[Layer, ...]:
    """Request compression for layers.

    Drops their content digest, which no longer identifies the blob.
    """
    if compression == "none":
        return tuple(layers)
    return tuple(replace(layer, compression=compression, content="") for layer in layers)


def _refuse_covered(base: BaseImage) -> None:
    """Refuse a base that holds files where ours go: above our layers, its own would win.

    Only packager puts files there, and its label shows that without reading layers.
    """
    labels = (base.config.get("config") or {}).get("Labels") or {}
    if _RECORD in labels:
        raise UsageError(
            f"base image {base.reference!r} was made by packager: its model would cover this one",
            hint="leave --layer-order out, or name the base that it was made from",
        )
