"""The images of a bundle: an OCI layout whose large blobs are files of a limited size.

Each byte is written once, straight into its part.  What is there already, of a run that was
killed, is kept; blobs that an earlier bundle has are left out.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from packager.addons.bundle.manifest import BundledPart
from packager.core.errors import OutputFailed, ProtocolFailed
from packager.core.files.atomic import explain_disk_errors, read_regular, write_atomically
from packager.core.image import Attached, Blob, ImageRef, ImageSpec, Layer, SealedImage
from packager.core.ports import BlobWriter, ImageSink
from packager.core.units import decimal
from packager.images.layout.artifacts import REF_NAME, with_attached
from packager.images.layout.parts import blob_at, part_path
from packager.images.oci import sha256

_LAYOUT_FILE = b'{"imageLayoutVersion":"1.0.0"}'
NEW = ".new"
_MARGIN = 16 * 1024 * 1024


class BundleSink(ImageSink):
    """Image sink for one image of a bundle; `cut` collects the parts of blobs that were cut."""

    keeps_index = True

    def __init__(
        self,
        layout: Path,
        tag: str,
        *,
        part_bytes: int,
        earlier: Collection[str] = (),
        cut: dict[str, tuple[BundledPart, ...]],
    ) -> None:
        self._root, self._tag, self._blobs = layout, tag, layout / "blobs" / "sha256"
        self._part_bytes, self._earlier, self._cut = part_bytes, earlier, cut

    def prepare(self, image: ImageSpec) -> None:
        """Make the directories and check the free space."""
        with explain_disk_errors(self._root):
            self._blobs.mkdir(parents=True, exist_ok=True)
            needed = sum(one.blob.length for one in image.layers if self._is_needed(one.digest))
            free = shutil.disk_usage(self._root).free
        if needed + _MARGIN > free:
            raise OutputFailed(
                f"{str(self._root)!r} needs {decimal(needed)}, {decimal(free)} are free",
                hint="free some space; what is there already is kept",
            )

    def writer(self, layer: Layer) -> BlobWriter | None:
        """Open a place for the blob, unless it is there or an earlier bundle has it."""
        if layer.digest and not self._is_needed(layer.digest):
            return None
        return _PartedBlob(self._blobs, self._part_bytes, self._cut)

    def locate(self, digest: str) -> Blob | None:
        """Return the blob's file, or its parts."""
        return blob_at(self._path_of(digest))

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:  # noqa: ARG002
        """Write configurations and manifests, then name the image in `index.json`."""
        with explain_disk_errors(self._root):
            for form in image.forms:
                self._put(form.config)
                self._put(form.manifest)
            if image.index is not None:
                self._put(image.index.document)
            write_atomically(self._root / "oci-layout", _LAYOUT_FILE)
            entry = {**image.named.to_json(), "annotations": {REF_NAME: self._tag}}
            others = [one for one in self._entries() if _name_of(one) != self._tag]
            self._write_index([*others, entry])
        return ImageRef(target=self._tag, name=self._tag, digest=image.digest)

    def attach(
        self,
        image: SealedImage,
        artifacts: Sequence[Attached],
        *,
        required: bool = False,  # noqa: ARG002
    ) -> None:
        """Keep artifacts beside the image, and name them in `index.json`."""
        with explain_disk_errors(self._root):
            entries, blobs = with_attached(
                self._entries(), image.digest, artifacts, self._small_blob
            )
            for blob in blobs:
                self._put(blob)
            self._write_index(entries)

    def abandon(self) -> None:
        """Remove what was not complete; blobs that are whole are kept for the next run."""
        for path in self._blobs.glob(f"{NEW}-*"):
            path.unlink(missing_ok=True)

    def _is_needed(self, digest: str) -> bool:
        name = digest.removeprefix("sha256:")
        return name not in self._earlier and blob_at(self._path_of(digest)) is None

    def _path_of(self, digest: str) -> Path:
        return self._blobs / digest.removeprefix("sha256:")

    def _put(self, data: bytes) -> None:
        path = self._path_of(sha256(data))
        if not path.exists():
            write_atomically(path, data)

    def _small_blob(self, digest: str, most: int) -> bytes:
        """Read a document of the layout; raises `ProtocolFailed` for a damaged or missing one."""
        data = b""
        with suppress(OSError):
            data = read_regular(self._path_of(digest), most)
        if sha256(data) != digest:
            raise ProtocolFailed(
                f"blob {digest} in {str(self._root)!r} is damaged", hint="make the bundle again"
            )
        return data

    def _entries(self) -> list[dict[str, Any]]:
        place = self._root / "index.json"
        if not place.exists():
            return []
        return list(json.loads(place.read_bytes())["manifests"])

    def _write_index(self, entries: Sequence[Mapping[str, Any]]) -> None:
        document = {"schemaVersion": 2, "manifests": list(entries)}
        data = json.dumps(document, separators=(",", ":")).encode()
        write_atomically(self._root / "index.json", data)


class _PartedBlob(BlobWriter):
    """One blob on its way into as many files as it needs; they get their names at its end."""

    def __init__(
        self, directory: Path, part_bytes: int, cut: dict[str, tuple[BundledPart, ...]]
    ) -> None:
        self._directory, self._part_bytes, self._cut = directory, part_bytes, cut
        self._files: list[Path] = []
        self._parts: list[BundledPart] = []
        self._open: BinaryIO | None = None
        self._size, self._sha = 0, hashlib.sha256()

    def write(self, chunk: memoryview) -> None:
        """Write the bytes into the current part, and go on to the next one at its limit."""
        while chunk:
            if self._open is None or self._size == self._part_bytes:
                self._begin()
            assert self._open is not None
            piece = chunk[: self._part_bytes - self._size]
            self._open.write(piece)
            self._sha.update(piece)
            self._size += len(piece)
            chunk = chunk[len(piece) :]

    def commit(self, digest: str) -> None:
        """Rename the files to the digest, the first part last: without it there is no blob."""
        if not self._files:
            self._begin()
        self._end()
        whole = self._directory / digest.removeprefix("sha256:")
        for stale in self._directory.glob(f"{whole.name}.part-*"):  # of another size, unfinished
            stale.unlink()
        if len(self._files) == 1:
            self._files[0].replace(whole)
            return
        for number in reversed(range(len(self._files))):
            self._files[number].replace(part_path(whole, number))
        self._cut[whole.name] = tuple(self._parts)

    def abort(self) -> None:
        """Remove the files."""
        if self._open is not None:
            self._open.close()
        for path in self._files:
            path.unlink(missing_ok=True)

    def _begin(self) -> None:
        self._end()
        path = self._directory / f"{NEW}-{id(self):x}-{len(self._files):03}"
        self._files.append(path)
        self._open = path.open("wb")
        self._size, self._sha = 0, hashlib.sha256()

    def _end(self) -> None:
        if self._open is None:
            return
        self._open.close()
        self._open = None
        if self._size:
            self._parts.append(BundledPart(sha256=self._sha.hexdigest(), size=self._size))


def _name_of(entry: Mapping[str, Any]) -> str:
    return str((entry.get("annotations") or {}).get(REF_NAME, ""))
