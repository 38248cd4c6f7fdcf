"""Layers that need not be read, because an image that is there already says what they hold.

A layer is a pure function of its files' paths, modes and contents.  Where the
source names every content by sha256 (a hub does, for Git LFS files), their
digest goes into the layer's descriptor.  A later build that knows the same
contents, on a machine that never saw them, finds the layer in the manifest.

Only what the source says goes in, never what was known by chance: the image's
digest must not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from packager.core.image import MEDIA_LAYER, Blob, Inline, Layer
from packager.core.model import ModelFile
from packager.errors import PackagerError
from packager.imaging.oci import canonical_json, parse_descriptor, parse_object, sha256
from packager.imaging.tar import TAR_FORMAT

CONTENT = "dev.packager.content"  # annotation of a layer: `content_digest` of its files
ROLE = "dev.packager.role"  # annotation of our own layers; the base's stay as they came
_CONTRADICTED = ""


def content_digest(files: Sequence[ModelFile], directory: str) -> str:
    """Name what a layer of `files` in `directory` holds; "" where a file's content has no name."""
    if not all(file.sha256 or file.part_of for file in files):
        return ""
    held = [
        [f"{directory}/{file.path}", file.size, file.executable, _name_of(file)]
        for file in sorted(files, key=lambda file: file.path)
    ]
    return sha256(canonical_json({"tar": TAR_FORMAT, "files": held}))


def _name_of(file: ModelFile) -> str | list[Any]:
    """Name a file's content: its sha256, or how it is made of another file's."""
    if file.sha256:
        return file.sha256
    segments = file.content.segments if isinstance(file.content, Blob) else (file.content,)
    made: list[str | list[int]] = [
        sha256(segment.data) if isinstance(segment, Inline) else [segment.offset, segment.length]
        for segment in segments
    ]
    return [file.part_of, *made]


@dataclass(frozen=True, slots=True)
class EarlierLayers:
    """What the manifests of one place say of layers that packager made."""

    digests: MappingProxyType[tuple[str, int], str] = field(
        default_factory=lambda: MappingProxyType({})
    )  # content and size → digest
    sizes: frozenset[tuple[str, int]] = frozenset()  # role and size

    def digest_of(self, layer: Layer) -> str:
        """The digest that `layer` is said to have; "" where nothing, or no one thing, is said."""
        content = layer.annotations.get(CONTENT)
        return self.digests.get((content, layer.size), "") if content else ""

    def has_alike(self, layer: Layer) -> bool:
        """Say whether a layer of this role and length is there: worth hashing before sending."""
        return (layer.annotations.get(ROLE, ""), layer.size) in self.sizes


def read_earlier(manifests: Iterable[bytes]) -> EarlierLayers:
    """Take what can be used of manifests that anyone may have written; never raises.

    Two digests for one content cannot both be right: then neither counts.
    """
    digests: dict[tuple[str, int], str] = {}
    sizes: set[tuple[str, int]] = set()
    for manifest in manifests:
        for entry in _layers(manifest):
            try:
                layer = parse_descriptor(entry)
                role, content = layer.annotations.get(ROLE), layer.annotations.get(CONTENT)
            except (PackagerError, AttributeError, OverflowError):
                continue
            if layer.media_type != MEDIA_LAYER or not isinstance(role, str):
                continue
            sizes.add((role, layer.size))
            if isinstance(content, str):
                key = content, layer.size
                agreed = digests.setdefault(key, layer.digest) == layer.digest
                digests[key] = layer.digest if agreed else _CONTRADICTED
    return EarlierLayers(MappingProxyType(digests), frozenset(sizes))


def _layers(manifest: bytes) -> list[Any]:
    try:
        parsed = parse_object(manifest, "manifest")
    except (PackagerError, RecursionError):
        return []
    layers = parsed.get("layers")
    return layers if isinstance(layers, list) else []
