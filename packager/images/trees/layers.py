"""The files of a tree as parts of the layers that are read for an image anyway.

A file that is in a layer byte for byte is cut out of it while the layer passes; the others
are layers of their own, which no image has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from packager.core.image import (
    MEDIA_FILE,
    ImageSpec,
    Inline,
    Layer,
    ModelTree,
    Segment,
    TreeFile,
    TreePart,
)
from packager.core.units import decimal

_Place = tuple[int, int]  # position of the layer, offset in its blob


def with_tree(image: ImageSpec, tree: ModelTree) -> ImageSpec:
    """Return the image with a tree beside it; what both have is read once."""
    layers, rest = _with_parts(image.layers, tree.files)
    return replace(image, layers=layers, tree=tree, beside=tuple(map(file_layer, rest)))


def with_files(image: ImageSpec, files: Iterable[TreeFile]) -> ImageSpec:
    """Return the image with the places of files in its layers, so that each gets its digest."""
    return replace(image, layers=_with_parts(image.layers, files)[0])


def _with_parts(
    layers: tuple[Layer, ...], files: Iterable[TreeFile]
) -> tuple[tuple[Layer, ...], list[TreeFile]]:
    """Return the layers with the files that are in them, and the files that are in none."""
    places = dict(_places(layers))
    parts: dict[int, list[TreePart]] = {}
    rest: list[TreeFile] = []
    for file in files:
        found = _find(file, places)
        if found is None:
            rest.append(file)
        else:
            parts.setdefault(found[0], []).append(TreePart(file=file, offset=found[1]))
    with_them = tuple(
        replace(layer, parts=tuple(sorted(parts.get(at, ()), key=lambda part: part.offset)))
        for at, layer in enumerate(layers)
    )
    return with_them, rest


def file_layer(file: TreeFile) -> Layer:
    """Describe a file as a layer of its own: its blob is the file."""
    return Layer(
        role="file",
        blob=file.blob,
        media_type=MEDIA_FILE,
        digest=f"sha256:{file.sha256}" if file.sha256 else "",
        diff_id=f"sha256:{file.sha256}" if file.sha256 else "",
        created_by=f"packager: file {file.path} ({decimal(file.size)})",
        parts=(TreePart(file=file, offset=0),),
    )


def _places(layers: tuple[Layer, ...]) -> Iterator[tuple[Segment, _Place]]:
    """Yield where each range of our own layers is; no layer of the base holds any."""
    for at, layer in enumerate(layers):
        position = 0
        for segment in layer.blob.segments if layer.role != "base" else ():
            if not isinstance(segment, Inline):
                yield segment, (at, position)
            position += segment.length


def _find(file: TreeFile, places: dict[Segment, _Place]) -> _Place | None:
    """Return where a layer holds the file: its ranges one after another, inline bytes between."""
    if not file.blob.segments or isinstance(file.blob.segments[-1], Inline):
        return None
    found: set[_Place] = set()
    before = 0
    for segment in file.blob.segments:
        if not isinstance(segment, Inline):
            layer, offset = places.get(segment, (-1, 0))
            found.add((layer, offset - before))
        before += segment.length
    place = found.pop()
    return place if not found and place[0] >= 0 else None
