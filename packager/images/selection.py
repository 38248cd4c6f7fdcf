"""Choosing layers of an image by what they are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from packager.core.errors import UsageError
from packager.images.stored import StoredImage, StoredLayer

LayerChoice = Literal["all", "own", "weights"]
CHOICES: Mapping[LayerChoice, str] = {
    "all": "the whole image",
    "own": "what packager added to the base",
    "weights": "weights of model, draft and adapters",
}
_WEIGHTS = ("weights", "draft", "adapter")
_NOT_OURS = ("base", "layer")


def choose_layers(image: StoredImage, choice: LayerChoice) -> tuple[StoredLayer, ...]:
    """Return the layers of a choice, in their order, each digest once; raise where it has none."""
    chosen: dict[str, StoredLayer] = {}
    for layer in image.layers:
        is_chosen = {
            "all": True,
            "own": layer.role not in _NOT_OURS,
            "weights": layer.role in _WEIGHTS,
        }[choice]
        if is_chosen:
            # Of equal layers the last one decides what is seen.
            chosen.pop(layer.descriptor.digest, None)
            chosen[layer.descriptor.digest] = layer
    if not chosen:
        raise UsageError(
            f"{image.reference!r} has no layer for --layers {choice}: {CHOICES[choice]}",
            hint="use --layers all, which takes images that packager did not build, too",
        )
    return tuple(chosen.values())
