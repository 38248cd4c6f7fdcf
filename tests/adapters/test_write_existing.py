"""Writing an image that exists already."""

from __future__ import annotations

from pathlib import Path

from packager.adapters.blobs import BlobReader
from packager.adapters.digest_index import DigestIndex
from packager.adapters.sinks.layout import LayoutSink
from packager.adapters.sinks.tee import write_image
from packager.core.image import Blob, Descriptor, ImageSpec, Inline, Layer, Platform, RuntimeConfig
from packager.imaging.oci import scratch, seal, sha256


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
        [LayoutSink(f"oci:{tmp_path}/out")],
        reader=BlobReader(),
        index=DigestIndex(tmp_path / "digests.sqlite"),
        sealed=existing,
    )

    assert written.refs[0].digest == existing.digest
    blobs = tmp_path / "out/blobs/sha256"
    assert (blobs / existing.digest.removeprefix("sha256:")).read_bytes() == existing.manifest
