"""Artifacts and serving configuration to an image, without reading a byte of weights."""

from __future__ import annotations

from collections.abc import Mapping

from packager.core.artifact import Artifacts
from packager.core.image import BaseImage, ImageSpec, RuntimeConfig
from packager.core.serving import MODEL_DIR, ServingConfig
from packager.imaging.layer_plan import MAX_LAYERS, config_layer, model_layers
from packager.imaging.oci import check_layer_count


def assemble_image(
    base: BaseImage,
    artifacts: Artifacts,
    serving: ServingConfig,
    *,
    labels: Mapping[str, str],
    created: str,
) -> ImageSpec:
    """Put base, weights and configuration in order: what changes most comes last.

    A file of the model that our configuration also writes is left out, so
    that layers stay disjoint and their order cannot matter.
    """
    ours = {file.path for file in serving.files}
    files = tuple(file for file in artifacts.model if f"{MODEL_DIR}/{file.path}" not in ours)
    layers = (
        *base.layers,
        *model_layers(files, base_layers=len(base.layers)),
        *((config_layer(serving.files),) if serving.files else ()),
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
