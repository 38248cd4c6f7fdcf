"""The slim image: the original's documents with other layers, and the label that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from packager.addons.nodes.slim.record import SlimBase, slim_label
from packager.core.image import BaseImage, ImageSpec, Layer, RuntimeConfig
from packager.images.slim_label import LABEL

_EPOCH = "1970-01-01T00:00:00Z"
FROM = "dev.packager.slim.from"  # annotation of the manifest


def slim_image(slim: SlimBase) -> ImageSpec:
    """Return the image to write: everything but the layers is the original's."""
    layers = tuple(layer for layer in slim.layers if layer is not None)
    config = {**slim.base.config, "history": _history(slim.base, slim.layers)}
    return ImageSpec(
        base=replace(slim.base, digest="", layers=layers, config=config),
        layers=layers,
        runtime=RuntimeConfig(labels={LABEL: slim_label(slim)}),
        created=str(slim.base.config.get("created") or _EPOCH),
        annotations={FROM: slim.base.digest},
    )


def _history(base: BaseImage, layers: Sequence[Layer | None]) -> list[Any]:
    """Return the history, in which a layer that went is an empty one."""
    entries = [dict(entry) for entry in base.config.get("history") or ()]
    filled = [entry for entry in entries if not entry.get("empty_layer", False)]
    if len(filled) != len(layers):
        return [{"created_by": f"base {base.digest}"} for layer in layers if layer is not None]
    for entry, layer in zip(filled, layers, strict=True):
        if layer is None:
            entry["empty_layer"] = True
    return entries
