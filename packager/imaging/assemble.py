"""Artifacts and serving configuration to an image, without reading a byte of weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from packager.core.artifact import Artifacts
from packager.core.image import BaseImage, ImageSpec, RuntimeConfig
from packager.core.model import ModelFile
from packager.core.serving import RenderedFile, ServingConfig
from packager.imaging.layer_plan import MAX_LAYERS, config_layer, draft_layers, model_layers
from packager.imaging.oci import check_layer_count


def assemble_image(
    base: BaseImage,
    artifacts: Artifacts,
    serving: ServingConfig,
    *,
    labels: Mapping[str, str],
    created: str,
    weights: Literal["baked", "mounted"] = "baked",
) -> ImageSpec:
    """Put base, weights, draft and configuration in order: what changes most comes last.

    A file of the model that our configuration also writes is left out, so
    that layers stay disjoint and their order cannot matter.  With mounted
    weights the image holds nothing below the mounts: it would be shadowed.
    """
    files = tuple(file for file in serving.files if not is_for_mount(file, serving, weights))
    ours = {file.path for file in files}
    model: tuple[ModelFile, ...] = ()
    draft: tuple[ModelFile, ...] = ()
    if weights == "baked":
        model = _without(artifacts.model, serving.model_dir, ours)
        draft = _without(artifacts.draft, serving.draft_dir, ours)
    layers = (
        *base.layers,
        *model_layers(model, base_layers=len(base.layers), directory=serving.model_dir),
        *draft_layers(draft, directory=serving.draft_dir),
        *((config_layer(files),) if files else ()),
    )
    image = ImageSpec(
        base=base,
        layers=layers,
        runtime=RuntimeConfig(
            entrypoint=serving.entrypoint,
            cmd=serving.cmd,
            env=serving.env,
            labels=labels,
            port=serving.port,
        ),
        created=created,
    )
    check_layer_count(image, MAX_LAYERS)
    return image


def is_for_mount(
    file: RenderedFile, serving: ServingConfig, weights: Literal["baked", "mounted"]
) -> bool:
    """Say whether a rendered file belongs beside mounted weights instead of into the image."""
    mounts = (f"{serving.model_dir}/", f"{serving.draft_dir}/")
    return weights == "mounted" and file.path.startswith(mounts)


def _without(files: Iterable[ModelFile], directory: str, ours: set[str]) -> tuple[ModelFile, ...]:
    return tuple(file for file in files if f"{directory}/{file.path}" not in ours)
