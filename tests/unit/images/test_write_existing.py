"""Writing an image that exists already."""

from __future__ import annotations

from pathlib import Path

from packager.core.image import Blob, Descriptor, ImageSpec, Inline, Layer, Platform, RuntimeConfig
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.layout.sink import LayoutSink
from packager.images.oci import scratch, seal, sha256
from packager.images.target import parse_layout_target
from packager.images.tee import write_image


def test_an_existing_manifest_is_written_as_it_is(tmp_path: Path) -> None:
    data = b"bytes of a layer"
    layer = Layer(role="weights", blob=Blob((Inline(data),)), digest=sha256(data))
    image = ImageSpec(
        base=scratch(Platform()), layers=(layer,), runtime=RuntimeConfig(), created="2001"
    )
    descriptor = Descriptor(media_type="a/b", digest=sha256(data), size=len(data))
    existing = seal(image, [descriptor])

    written = write_image(
        ImageSpec(base=image.base, layers=(layer,), runtime=RuntimeConfig(), created="2002"),
        [LayoutSink(parse_layout_target(f"oci:{tmp_path}/out"))],
        reader=BlobReader(),
        index=DigestIndex(tmp_path / "digests.sqlite"),
        sealed=existing,
    )

    assert written.refs[0].digest == existing.digest
    blobs = tmp_path / "out/blobs/sha256"
    assert (blobs / existing.digest.removeprefix("sha256:")).read_bytes() == existing.manifest
