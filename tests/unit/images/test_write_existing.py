"""Writing an image that exists already."""

from __future__ import annotations

from pathlib import Path

from packager.core.image import Descriptor
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.oci import seal, sha256
from packager.images.tee import write_image
from tests.support.made_images import blob_in, image_with, layer_with, layout_sink


def test_an_existing_manifest_is_written_as_it_is(tmp_path: Path) -> None:
    data = b"bytes of a layer"
    layer = layer_with(data, digest=sha256(data))
    descriptor = Descriptor(media_type="a/b", digest=sha256(data), size=len(data))
    existing = seal(image_with(layer, created="2001"), [descriptor])

    written = write_image(
        image_with(layer, created="2002"),
        [layout_sink(tmp_path / "out")],
        reader=BlobReader(),
        index=DigestIndex(tmp_path / "digests.sqlite"),
        sealed=existing,
    )

    assert written.refs[0].digest == existing.digest
    assert blob_in(tmp_path / "out", existing.digest).read_bytes() == existing.manifest
