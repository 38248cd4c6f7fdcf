"""Image sink `tar:FILE`: an OCI image layout in one tar file, which skopeo calls `oci-archive`."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from packager.cli.plugins.contexts import SinkContext
from packager.cli.plugins.rows import SinkRow, SinkTraits
from packager.core.errors import OutputFailed
from packager.core.image import Blob, ImageRef, ImageSpec, Layer, SealedImage
from packager.core.ports import BlobWriter, ImageSink
from packager.core.references import ImageTarget


class TarSink(ImageSink):
    """One image in one tar file, which appears when it is complete."""

    def __init__(self, target: ImageTarget) -> None:
        self._target = target.text
        self._file = Path(target.rest).absolute()
        self._blobs = self._file.with_name(f".{self._file.name}.blobs")

    def prepare(self, image: ImageSpec) -> None:
        """Refuse a directory in the file's place; make room for blobs beside it."""
        if self._file.is_dir():
            raise OutputFailed(f"{str(self._file)!r} is a directory", hint="name a file")
        self._blobs.mkdir(parents=True, exist_ok=True)

    def writer(self, layer: Layer) -> BlobFile | None:
        """Open a file for the layer, unless it is there already."""
        if layer.digest and (self._blobs / layer.digest[7:]).exists():
            return None
        return BlobFile(self._blobs)

    def locate(self, digest: str) -> Blob | None:
        """Nothing can be read back from a tar file that is not finished."""
        return None

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:
        """Put configuration, manifest and layers into the archive, then give it its name."""
        (self._blobs / image.config_descriptor.digest[7:]).write_bytes(image.config)
        (self._blobs / image.digest[7:]).write_bytes(image.manifest)
        index = {"schemaVersion": 2, "manifests": [image.manifest_descriptor.to_json()]}
        (self._blobs / "index.json").write_text(json.dumps(index))
        (self._blobs / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        unfinished = self._blobs.with_suffix(".tar")
        with tarfile.open(unfinished, "w") as archive:
            for file in sorted(self._blobs.iterdir()):
                is_blob = len(file.name) == 64
                archive.add(file, f"blobs/sha256/{file.name}" if is_blob else file.name)
        unfinished.replace(self._file)
        shutil.rmtree(self._blobs)
        return ImageRef(target=self._target, name=self._target, digest=image.digest)

    def abandon(self) -> None:
        """Remove what a failed build has left."""
        shutil.rmtree(self._blobs, ignore_errors=True)


class BlobFile(BlobWriter):
    """One blob on its way; it gets its name when it is complete."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = tempfile.NamedTemporaryFile(dir=directory, prefix=".", delete=False)  # noqa: SIM115

    def write(self, chunk: memoryview) -> None:
        """Append the bytes."""
        self._file.write(chunk)

    def commit(self, digest: str) -> None:
        """Rename the file to the digest."""
        self._file.close()
        Path(self._file.name).replace(self._directory / digest[7:])

    def abort(self) -> None:
        """Remove the file."""
        self._file.close()
        Path(self._file.name).unlink(missing_ok=True)


def make(target: ImageTarget, context: SinkContext) -> TarSink:
    """Make the sink; this one needs nothing of the context."""
    return TarSink(target)


TAR = SinkRow("tar:FILE, an OCI layout in a tar file", make, SinkTraits(order=1))
