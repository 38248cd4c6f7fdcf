"""Layers that need not be read, because the content of an earlier image's layers is proven.

A layer is a pure function of its files' paths, modes and contents.  Where the
source names every content by sha256 (a hub does, for Git LFS files), their
digest stands for the layer's bytes.  A claim that a key of ours authenticates
(`claims.py`) gives the blob of such a layer to a machine that never read it.

All other answers of a registry are hints: they only decide whether hashing a layer first is likely
to save its upload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from packager.core.errors import PackagerError
from packager.core.image import (
    MEDIA_EROFS,
    MEDIA_LAYER,
    Blob,
    Computed,
    FileRange,
    Inline,
    Layer,
    Segment,
)
from packager.core.model import ModelFile
from packager.images.claims import ClaimDocument, ClaimKey, judge
from packager.images.oci import canonical_json, parse_descriptor, parse_object, sha256
from packager.images.rootfs.placement import AS_NAMED, Placement
from packager.images.tar import TAR_FORMAT

ROLE = "dev.packager.role"  # annotation of our own layers
_CONTRADICTED = ""
_Named = tuple[str, str, int]  # role, content, size


def content_digest(
    files: Sequence[ModelFile], directory: str, placement: Placement = AS_NAMED
) -> str:
    """Return the digest of a layer's contents in `directory`; "" where a file has none."""
    if not all(map(_is_named, files)) or any(map(_is_cached, files)):
        return ""
    held = [
        [placement.path(f"{directory}/{file.path}"), file.size, file.executable, _name_of(file)]
        for file in sorted(files, key=lambda file: file.path)
    ]
    document: dict[str, Any] = {"tar": TAR_FORMAT, "files": held}
    if kept := placement.kept(str(row[0]) for row in held):
        document["directories"] = {path: repr(has) for path, has in kept.items()}
    return sha256(canonical_json(document))


def _is_named(file: ModelFile) -> bool:
    return bool(file.sha256 or file.part_of) or isinstance(file.content, Inline)


def _is_cached(file: ModelFile) -> bool:
    """Return whether the file is the artifact cache's, which says its sha256 from memory.

    A claim outlives the machine: it is made of digests that were computed from the bytes.
    """
    ranges = file.content.ranges if isinstance(file.content, Blob) else (file.content,)
    return any(isinstance(one, FileRange) and one.sha256 for one in ranges)


def _name_of(file: ModelFile) -> str | list[Any]:
    """Return a file's content identity: its sha256, or how it is made of another file."""
    if file.sha256:
        return file.sha256
    segments = file.content.segments if isinstance(file.content, Blob) else (file.content,)
    return [file.part_of, *map(_made, segments)]


def _made(segment: Segment) -> str | list[Any]:
    """Return what a segment takes of its file, or computes of it."""
    if isinstance(segment, Inline):
        return sha256(segment.data)
    taken: list[Any] = [segment.offset, segment.length]
    if isinstance(segment, Computed):
        return [segment.maker.identity, *taken, *map(_made, segment.sources)]
    return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLayerIndex:
    """Index of layers in one repository: proven digests, and what manifests claim without proof."""

    key_id: str = ""  # of the key that proved `digests`
    digests: Mapping[_Named, str] = field(default_factory=lambda: MappingProxyType({}))  # proven
    alike: Mapping[tuple[str, int], frozenset[str]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # role and size → digests; a hint
    contents: Mapping[str, frozenset[str]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # digest → contents that anybody claims it has; a hint

    def digest_of(self, layer: Layer) -> str:
        """The digest that `layer` is proven to have; "" where nothing, or no one thing, is."""
        return self.digests.get((layer.role, layer.content, layer.size), "")

    def has_similar(self, layer: Layer) -> bool:
        """Return whether the registry probably has the layer: worth hashing before sending.

        It has one of the same role and length, without a claim of other content.
        """
        return any(
            not layer.content or layer.content in self.contents.get(digest, (layer.content,))
            for digest in self.alike.get((layer.role, layer.size), ())
        )


def read_earlier(
    manifests: Iterable[bytes],
    documents: Iterable[ClaimDocument] = (),
    *,
    key: ClaimKey | None = None,
    repository: str = "",
) -> RemoteLayerIndex:
    """Build the index from documents that anyone may have written; invalid ones are ignored.

    Two digests for one content cannot both be right: then neither counts.
    """
    digests: dict[_Named, str] = {}
    contents: dict[str, frozenset[str]] = {}
    for document in documents:
        proven = judge(document, key, repository) == "proven"
        for claim in document.claims:
            others = contents.get(claim.digest, frozenset())
            contents[claim.digest] = others | {claim.content}
            if proven:
                named = claim.role, claim.content, claim.size
                agreed = digests.setdefault(named, claim.digest) == claim.digest
                digests[named] = claim.digest if agreed else _CONTRADICTED
    return RemoteLayerIndex(
        key_id=key.id if key else "",
        digests=MappingProxyType(digests),
        alike=MappingProxyType(_alike(manifests)),
        contents=MappingProxyType(contents),
    )


def _alike(manifests: Iterable[bytes]) -> dict[tuple[str, int], frozenset[str]]:
    found: dict[tuple[str, int], frozenset[str]] = {}
    for manifest in manifests:
        for entry in _layers(manifest):
            try:
                layer = parse_descriptor(entry)
                role = layer.annotations.get(ROLE)
            except PackagerError:
                continue
            if layer.media_type in (MEDIA_LAYER, MEDIA_EROFS) and isinstance(role, str):
                known = found.get((role, layer.size), frozenset())
                found[role, layer.size] = known | {layer.digest}
    return found


def _layers(manifest: bytes) -> list[Any]:
    try:
        parsed = parse_object(manifest, "manifest")
    except PackagerError:
        return []
    layers = parsed.get("layers")
    return layers if isinstance(layers, list) else []
