"""Sinks of trees: files cut out of passing layers and stored one by one.

A layer that holds files of the tree passes as a tar; the places of the files in it are known
beforehand.  A file by itself is a layer, too.  A file that is stored already under its path, size
and sha256 is not requested.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

from packager.core.errors import ProtocolFailed
from packager.core.image import (
    MEDIA_FILE,
    Blob,
    ImageRef,
    ImageSpec,
    Layer,
    ModelTree,
    SealedImage,
    TreeFile,
    TreePart,
)
from packager.core.ports import BlobWriter, ImageSink
from packager.core.references import ImageTarget
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex, Fingerprint, fingerprint_of
from packager.images.order import is_local


class TreeStore(Protocol):
    """A place of one tree. `has` and `open` are called from several threads.

    Calls come in this order: `prepare`, then `has` and `open` for each file, then `publish` or
    `abandon` once.
    """

    @property
    def name(self) -> str:
        """Return the address of the tree for its readers."""
        ...

    def preflight(self) -> None:
        """Raise if the place is not writable, before hours of work."""
        ...

    def prepare(self, tree: ModelTree) -> None:
        """Refuse a place that holds what packager did not write, or that lacks space."""
        ...

    def has(self, file: TreeFile, sha256: str) -> bool:
        """Return whether the file is there with this content, and need not be written."""
        ...

    def may_have(self, file: TreeFile) -> bool:
        """Return whether something of this path and size is there: worth hashing the source."""
        ...

    def open(self, file: TreeFile, sha256: str) -> BlobWriter:
        """Open the file; `commit` is called with `sha256:…`, which may be known already."""
        ...

    def publish(self, manifest: bytes) -> None:
        """Write the manifest last; remove files of the tree before that are not in this one."""
        ...

    def abandon(self) -> None:
        """Clean up what a rerun could not use. Never raises."""
        ...

    def keep_beside(self, name: str, data: bytes) -> None:
        """Write a document beside the tree, which is no file of it."""
        ...

    @property
    def bytes_sent(self) -> int:
        """Return the bytes sent over a network so far."""
        ...


class TreeSink(ImageSink):
    """Writes a tree as an image sink: requests the layers that hold missing files."""

    def __init__(
        self,
        target: ImageTarget,
        store: TreeStore,
        index: DigestIndex,
        reader: BlobReader,
        *,
        verify: bool = False,
    ) -> None:
        self._verify = verify
        self._reader = reader
        self.target = target.text
        self._store = store
        self._index = index
        self._digests: dict[str, str] = {}  # sha256 of the files that are there, by path

    @property
    def tree_digests(self) -> Mapping[str, str]:
        """Return the sha256 of the files, by path; complete when all layers have passed."""
        return self._digests

    @property
    def bytes_sent(self) -> int:
        return self._store.bytes_sent

    def preflight(self) -> None:
        """Ask the place, before there is an image."""
        self._store.preflight()

    def prepare(self, image: ImageSpec) -> None:
        """Look at what is there."""
        assert image.tree is not None
        self._digests.clear()
        self._store.prepare(image.tree)

    def writer(self, layer: Layer) -> BlobWriter | None:
        """Open the files of the layer that are not there; None where all are."""
        if layer.media_type == MEDIA_FILE:
            return self._alone(layer)
        lacking = []
        for part in layer.parts:
            known = self.known_digest(part)
            if known and self._store.has(part.file, known):
                self._digests[part.file.path] = known
            else:
                lacking.append((part, known))
        return PartsWriter(self, lacking) if lacking else None

    def locate(self, digest: str) -> Blob | None:  # noqa: ARG002
        """No layer can be read back from a tree."""
        return None

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:  # noqa: ARG002
        """Publish the tree; its manifest names it."""
        self._store.publish(image.tree)
        digest = f"sha256:{hashlib.sha256(image.tree).hexdigest()}"
        return ImageRef(target=self.target, name=self._store.name, digest=digest)

    def keep_beside(self, name: str, data: bytes) -> None:
        """Write a document beside the tree: `DIR.sbom.cdx.json`."""
        self._store.keep_beside(name, data)

    def abandon(self) -> None:
        """Leave what another build can use."""
        self._store.abandon()

    def known_digest(self, part: TreePart) -> str:
        """Return the file's known sha256; "" if its present content is unread.

        A local file is read if that may save its upload.
        """
        file = part.file
        if file.sha256:
            return file.sha256
        found = self._index.get(file.blob)
        if found is not None and found.proven and not self._verify:
            return found.digest.removeprefix("sha256:")
        if not (is_local(file.blob) and self._store.may_have(file)):
            return ""
        since_ns, before, hashed = self.now_ns(), fingerprint_of(file.blob), hashlib.sha256()
        for chunk in self._reader.chunks(file.blob):
            hashed.update(chunk)
        self._index.put(file.blob, f"sha256:{hashed.hexdigest()}", before, since_ns)
        return hashed.hexdigest()

    def open(self, file: TreeFile, sha256: str) -> BlobWriter:
        """Open a file of the place."""
        return self._store.open(file, sha256)

    def now_ns(self) -> int:
        return self._index.now_ns()

    def keep(self, file: TreeFile, sha256: str, before: Fingerprint | None, since_ns: int) -> None:
        """Note a file that was written, and what its source's bytes are."""
        self._digests[file.path] = sha256
        self._index.put(file.blob, f"sha256:{sha256}", before, since_ns)

    def _alone(self, layer: Layer) -> BlobWriter | None:
        [part] = layer.parts
        sha256 = layer.digest.removeprefix("sha256:") or self.known_digest(part)
        if sha256 and self._store.has(part.file, sha256):
            self._digests[part.file.path] = sha256
            return None
        return FileWriter(self._digests, part.file, self._store.open(part.file, sha256))


class FileWriter(BlobWriter):
    """A file that is a layer of its own."""

    def __init__(self, digests: dict[str, str], file: TreeFile, writer: BlobWriter) -> None:
        self._digests = digests
        self._file = file
        self._writer = writer

    @property
    def complete(self) -> bool:
        """Return whether the writer has all bytes already, as shared extents."""
        return self._writer.complete

    def write(self, chunk: memoryview) -> None:
        self._writer.write(chunk)

    def commit(self, digest: str) -> None:
        """Note the file, which is there now."""
        self._writer.commit(digest)
        self._digests[self._file.path] = digest.removeprefix("sha256:")

    def abort(self) -> None:
        self._writer.abort()

    def interrupt(self) -> None:
        self._writer.interrupt()


class PartsWriter(BlobWriter):
    """The files of a layer, cut out of its bytes as they pass; it takes them uncompressed."""

    def __init__(self, sink: TreeSink, parts: list[tuple[TreePart, str]]) -> None:
        self._sink = sink
        self._waiting = sorted(parts, key=lambda one: -one[0].offset)
        self._position = 0
        self._open: _OpenPart | None = None

    def write(self, chunk: memoryview) -> None:
        """Write each file's bytes."""
        end = self._position + len(chunk)
        while True:
            part = self._open or self._next(end)
            if part is None:
                break
            start, stop = part.offset - self._position, part.end - self._position
            part.write(chunk[max(start, 0) : stop])
            if part.end > end:
                break
            self._close(part)
        self._position = end

    def commit(self, digest: str) -> None:  # noqa: ARG002
        """Check that every file was complete: each was committed at its end."""
        if self._open is not None or self._waiting:
            raise ProtocolFailed("a layer ended before its files", hint="build again")

    def abort(self) -> None:
        """Discard the file that has begun; earlier ones are whole."""
        if self._open is not None:
            self._open.writer.abort()
            self._open = None

    def interrupt(self) -> None:
        if self._open is not None:
            self._open.writer.interrupt()

    def _next(self, end: int) -> _OpenPart | None:
        """Open the next file, where it begins before `end` or is empty there."""
        if not self._waiting or self._waiting[-1][0].offset > end:
            return None
        if self._waiting[-1][0].offset == end and self._waiting[-1][0].file.size:
            return None
        self._open = _OpenPart(self._sink, *self._waiting.pop())
        return self._open

    def _close(self, part: _OpenPart) -> None:
        part.commit()
        self._open = None


class _OpenPart:
    """One file of a layer that is being written."""

    def __init__(self, sink: TreeSink, part: TreePart, known: str) -> None:
        self._sink = sink
        self._file = part.file
        self.offset, self.end = part.offset, part.offset + part.file.size
        self._since_ns = sink.now_ns()
        self._before = fingerprint_of(part.file.blob)
        self._hashed = hashlib.sha256()
        self.writer = sink.open(part.file, known)

    def write(self, chunk: memoryview) -> None:
        if chunk:
            self._hashed.update(chunk)
            self.writer.write(chunk)

    def commit(self) -> None:
        sha256 = self._hashed.hexdigest()
        if self._file.sha256 and sha256 != self._file.sha256:
            raise ProtocolFailed(
                f"{self._file.path!r} has sha256 {sha256}, expected {self._file.sha256}",
                hint="the source is damaged; fetch it again",
            )
        self.writer.commit(f"sha256:{sha256}")
        self._sink.keep(self._file, sha256, self._before, self._since_ns)
