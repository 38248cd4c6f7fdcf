"""Images that an index names: for several platforms, or in two forms of layers.

Also what names a build whose outputs are trees.  The two forms are plain layers, and file systems
over them.

containerd marks images of file systems by `os.features` (its plugins/diff/erofs).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from packager.core.errors import NotFound
from packager.core.image import (
    MEDIA_EROFS,
    MEDIA_INDEX,
    Descriptor,
    ImageSpec,
    Layer,
    Platform,
    SealedImage,
    SealedIndex,
)
from packager.core.ports import ImageSink
from packager.images.oci import (
    canonical_json,
    make_config,
    parse_descriptor,
    parse_index,
    seal,
    seal_config,
    sha256,
    shorten_list,
)

OS_FEATURES, EROFS = "os.features", "erofs"


def choose_platform(index: bytes, platform: Platform) -> Descriptor:
    """Return the manifest for `platform` from an index; the first match wins.

    Attestation manifests (`unknown/unknown`) and images of file systems never match: callers unpack
    layers.
    """
    entries = parse_index(index)
    offered = []
    for entry in entries:
        found = entry.get("platform") or {}
        if needs_erofs(entry):
            continue
        offered.append(f"{found.get('os')}/{found.get('architecture')}")
        if (found.get("os"), found.get("architecture")) == (platform.os, platform.architecture):
            return parse_descriptor(entry)
    if len(entries) == 1 and not entries[0].get("platform"):  # its platform is unknown
        return parse_descriptor(entries[0])
    raise NotFound(
        f"the image has no manifest for {platform}",
        hint=f"it offers {shorten_list(sorted(set(offered))) or 'nothing'}",
    )


def needs_erofs(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry of an index is for nodes that mount layers as file systems."""
    features = (entry.get("platform") or {}).get(OS_FEATURES)
    return isinstance(features, list) and EROFS in features


def offered_platforms(index: bytes) -> tuple[str, ...]:
    """The platforms that an index has images for, without attestations and file systems."""
    entries = (entry for entry in parse_index(index) if not needs_erofs(entry))
    platforms = [entry.get("platform") or {} for entry in entries]
    return tuple(
        f"{found.get('os')}/{found.get('architecture')}"
        for found in platforms
        if found.get("os", "unknown") != "unknown"
    )


def seal_forms(image: ImageSpec) -> SealedImage:
    """Write the documents of an image whose layers have digests, and of its second form.

    The plain manifest is the index's first entry: clients that ask for a platform and know no
    more take it.
    """
    plain = seal(image, [describe(layer) for layer in image.layers])
    if not any(layer.twin for layer in image.layers):
        return plain
    mounted = replace(image, layers=tuple(layer.twin or layer for layer in image.layers))
    descriptors = [describe(layer) for layer in mounted.layers]
    config = {**make_config(mounted, descriptors), OS_FEATURES: [EROFS]}
    other = seal_config(mounted, descriptors, config)
    platform = {"architecture": image.base.platform.architecture, "os": image.base.platform.os}
    index = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MEDIA_INDEX,
            "manifests": [
                {**plain.manifest_descriptor.to_json(), "platform": platform},
                {
                    **other.manifest_descriptor.to_json(),
                    "platform": {**platform, OS_FEATURES: [EROFS]},
                },
            ],
        }
    )
    descriptor = Descriptor(media_type=MEDIA_INDEX, digest=sha256(index), size=len(index))
    return replace(plain, index=SealedIndex(document=index, descriptor=descriptor, others=(other,)))


def forms_of(index: bytes) -> tuple[str, ...]:
    """Return the manifests of an index that packager wrote, the plain one first; else none.

    Other indexes may hold images of many platforms, with no preferred one.
    """
    entries = parse_index(index)
    if [needs_erofs(entry) for entry in entries] != [False, True]:
        return ()
    return tuple(parse_descriptor(entry).digest for entry in entries)


def has_file_systems(image: SealedImage) -> bool:
    """Return whether a form of the image has layers that are file systems."""
    layers = (layer for form in image.forms for layer in form.layers)
    return any(layer.media_type.startswith(MEDIA_EROFS) for layer in layers)


def describe(layer: Layer) -> Descriptor:
    """Describe a layer whose digest is known."""
    return Descriptor(
        media_type=layer.media_type,
        digest=layer.digest,
        size=layer.size,
        annotations=layer.annotations,
    )


def form_for(sink: ImageSink, sealed: SealedImage) -> SealedImage:
    """Return what a sink publishes: all forms of the image, or the plain one."""
    return sealed if sink.keeps_index else sealed.plain


def tree_manifest(image: ImageSpec, sinks: Sequence[ImageSink]) -> bytes:
    """Return the manifest of the tree that is written beside the image; b"" without one."""
    digests = next((one for sink in sinks if (one := sink.tree_digests) is not None), None)
    if image.tree is None or digests is None:
        return b""
    from packager.core.tree_manifest import write_manifest

    return write_manifest(image.tree, digests)


def named_digest(sealed: SealedImage, sinks: Sequence[ImageSink]) -> str:
    """Return the digest that names the build: the image's, else the tree's."""
    if sinks and all(sink.tree_digests is not None for sink in sinks):
        return f"sha256:{hashlib.sha256(sealed.tree).hexdigest()}"
    return sealed.digest
