"""Layers of an image as EROFS file systems beside the plain ones, from the same read.

All headers of our own layers are inline, so what surrounds a tar in its file system is known before
a byte of the weights is read.  The base's layers have no twin: containerd converts them, and a node
with the layer has no use for a second copy.
"""

from __future__ import annotations

from dataclasses import replace

from packager.core.image import MEDIA_EROFS, Blob, ImageSpec, Inline, Layer
from packager.images.erofs.metadata import EROFS_FORMAT, make_blob
from packager.images.erofs.scan import scan_blob
from packager.images.oci import canonical_json, sha256


def with_file_systems(image: ImageSpec) -> ImageSpec:
    """Return the image whose own layers have file systems as twins."""
    layers = (
        layer if layer.role == "base" else replace(layer, twin=file_system_of(layer))
        for layer in image.layers
    )
    return replace(image, layers=tuple(layers))


def file_system_of(layer: Layer) -> Layer:
    """Describe the file system of an uncompressed layer of ours; raise `LayerNotMountable`."""
    made = make_blob(scan_blob(layer.blob))
    content = canonical_json({"erofs": EROFS_FORMAT, "of": layer.content})
    return Layer(
        role=layer.role,
        blob=Blob((Inline(made.head), *layer.blob.segments, Inline(made.tail))),
        media_type=MEDIA_EROFS,
        created_by=layer.created_by,
        content=sha256(content) if layer.content else "",
        annotations=layer.annotations,
    )
