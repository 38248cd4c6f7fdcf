"""Differences between two images.

Layers that a node with one lacks of the other, and changed settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from packager.core.units import decimal
from packager.images.stored import LABELS, StoredImage, StoredLayer

State = Literal["shared", "moved", "new"]
_MADE = re.compile(r"packager: [a-z]+ (.+) \([^()]*\)")  # as `layer_plan` writes it
_ROLES = {
    "base": "the base",
    "weights": "weights",
    "model": "small files of the model",
    "draft": "draft",
    "adapter": "adapter",
    "compiled": "compiled artifacts",
    "config": "serving configuration",
}
_SETTINGS = ("Entrypoint", "Cmd", "User", "WorkingDir", "ExposedPorts", "Volumes", "StopSignal")


@dataclass(frozen=True, slots=True)
class ComparedLayer:
    """A layer of the second image, seen from a node that has the first."""

    layer: StoredLayer
    state: State  # `moved`: the node has the bytes, above other layers
    cause: str = ""  # why it is not `shared`, as far as the documents show


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One changed setting. None: the image does not set it."""

    what: str
    before: object
    after: object


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageComparison:
    """From image `a` to image `b`."""

    a: StoredImage
    b: StoredImage
    layers: tuple[ComparedLayer, ...]  # of `b`, in its order
    gone: tuple[StoredLayer, ...]  # of `a` only
    changes: tuple[SettingChange, ...]

    @property
    def same(self) -> bool:
        return self.a.digest == self.b.digest

    def size(self, *states: State) -> int:
        """Bytes of the layers in these states, each digest once."""
        return sum(
            {
                entry.layer.descriptor.digest: entry.layer.size
                for entry in self.layers
                if entry.state in states
            }.values()
        )


def compare(a: StoredImage, b: StoredImage) -> ImageComparison:
    """Compare by digest: layers first, then what is configured."""
    held = {layer.descriptor.digest for layer in a.layers}
    wanted = {layer.descriptor.digest for layer in b.layers}
    return ImageComparison(
        a=a,
        b=b,
        layers=tuple(_layers(a, b, held)),
        gone=tuple(layer for layer in a.layers if layer.descriptor.digest not in wanted),
        changes=tuple(_changes(a, b)),
    )


def _layers(a: StoredImage, b: StoredImage, held: set[str]) -> Iterator[ComparedLayer]:
    in_place = True  # all layers below are the same, so the unpacked one is too
    below = ""  # the lowest layer that is another one
    for position, layer in enumerate(b.layers):
        digest = layer.descriptor.digest
        in_place = (
            in_place and position < len(a.layers) and a.layers[position].descriptor.digest == digest
        )
        if in_place:
            yield ComparedLayer(layer, "shared")
            continue
        cause = f"it lies above {below}" if below else "it lies elsewhere in the first image"
        if digest in held:
            yield ComparedLayer(layer, "moved", cause)
        else:
            yield ComparedLayer(layer, "new", _cause(layer, a, b))
        below = below or _name(layer)


def _cause(layer: StoredLayer, a: StoredImage, b: StoredImage) -> str:
    """Describe why a layer differs, from names and sizes only; no layer is read."""
    if layer.role == "base":
        known = a.base_digest and a.base_digest != b.base_digest
        return "another base" if known else "the first image's base has no such layer"
    alike = [other for other in a.layers if other.role == layer.role]
    if not alike:
        return f"the first image has no {_ROLES.get(layer.role, layer.role)}"
    if layer.diff_id and any(other.diff_id == layer.diff_id for other in alike):
        return "the same files, written otherwise"
    namesakes = [other for other in alike if _name(other) == _name(layer)]
    if not namesakes:
        return f"the first image has no {_name(layer)}"
    what = _name(layer)
    if any(other.size == layer.size for other in namesakes):
        return f"{what}: changed, of the same size"
    return f"{what}: changed, was {decimal(namesakes[0].size)}"


def _name(layer: StoredLayer) -> str:
    """What the history calls a layer of ours; of others, the kind of layer."""
    found = _MADE.fullmatch(layer.created_by)
    return found[1] if found else _ROLES.get(layer.role, "another layer")


def _changes(a: StoredImage, b: StoredImage) -> Iterator[SettingChange]:
    yield from _differences({"platform": str(a.platform)}, {"platform": str(b.platform)})
    yield from _differences({"base": a.base_digest}, {"base": b.base_digest})
    for name in _SETTINGS:
        if a.runtime.get(name) != b.runtime.get(name):
            yield SettingChange(what=name, before=a.runtime.get(name), after=b.runtime.get(name))
    yield from _differences(_environment(a), _environment(b), "env ")
    yield from _differences(_labels(a), _labels(b), "label ")
    yield from _differences(_flat(a.record), _flat(b.record), "record ")


def _differences(
    before: Mapping[str, object], after: Mapping[str, object], prefix: str = ""
) -> Iterator[SettingChange]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield SettingChange(what=prefix + name, before=before.get(name), after=after.get(name))


def _environment(image: StoredImage) -> dict[str, object]:
    found = image.runtime.get("Env")
    entries = [str(entry) for entry in found] if isinstance(found, list) else []
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def _labels(image: StoredImage) -> dict[str, object]:
    """Without what the record says again."""
    repeated = (f"{LABELS}record", "org.opencontainers.image.base.digest")
    return {name: value for name, value in image.labels.items() if name not in repeated}


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        elif f"{prefix}{name}" not in ("base", "packager"):  # shown by other lines
            flat[f"{prefix}{name}"] = value
    return flat
