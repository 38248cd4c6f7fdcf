"""The second blob of a layer's read: what surrounds the layer's bytes in it is added here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from packager.core.errors import ProtocolFailed, Unavailable
from packager.core.image import Inline, Layer
from packager.core.ports import BlobWriter, ImageSink
from packager.images.digest_index import DigestIndex, Fingerprint, fingerprint_of
from packager.images.writers import feed, open_writers


class TwinStream:
    """Takes a layer's chunks on their way; feeds the writers of its twin, and hashes it.

    Does nothing without writers, or if its digest is known.
    """

    def __init__(
        self, twin: Layer | None, writers: Mapping[ImageSink, BlobWriter], *, verify: bool
    ):
        is_needed = twin is not None and (bool(writers) or verify or not twin.digest)
        self._twin = twin if is_needed else None
        self.alive = dict(writers)
        self.broken: dict[ImageSink, Unavailable] = {}
        self._hashed = hashlib.sha256()
        self._before: Fingerprint | None = None
        if self._twin is not None:
            self._before = fingerprint_of(self._twin.blob)

    def begin(self) -> None:
        """Write what comes before the layer."""
        self._feed_inline(0)

    def feed(self, chunk: memoryview) -> None:
        """Write the layer's next bytes."""
        if self._twin is not None:
            self._hashed.update(chunk)
            feed(chunk, self.alive, self.broken)

    def end(self) -> str:
        """Write what comes after the layer; return the twin's digest, "" where it did not pass."""
        if self._twin is None:
            return ""
        self._feed_inline(-1)
        return "sha256:" + self._hashed.hexdigest()

    def remember(self, index: DigestIndex, digest: str, started_ns: int) -> None:
        """Keep the digest, if the twin's files are as they were."""
        if self._twin is not None:
            index.put(self._twin.blob, digest, self._before, started_ns)

    def _feed_inline(self, at: int) -> None:
        if self._twin is not None:
            segment = self._twin.blob.segments[at]
            assert isinstance(segment, Inline)
            self.feed(memoryview(segment.data))


def with_twin_digest(layer: Layer, digest: str) -> Layer:
    """Return the layer with its twin's digest; unchanged without one."""
    if layer.twin is None or not digest:
        return layer
    return replace(layer, twin=replace(layer.twin, digest=digest, believed=""))


def open_both(
    layer: Layer, sinks: Sequence[ImageSink], twin_sinks: Sequence[ImageSink]
) -> tuple[dict[ImageSink, BlobWriter], dict[ImageSink, BlobWriter]]:
    """Open the writers of a layer and of its twin; none is left open where one fails."""
    writers = open_writers(layer, sinks)
    try:
        return writers, open_writers(layer.twin, twin_sinks) if layer.twin else {}
    except BaseException:
        for writer in writers.values():
            writer.abort()
        raise


def check_digest(layer: Layer, digest: str) -> None:
    """Raise where the bytes that passed are not those that the layer is known by."""
    if layer.digest and layer.digest != digest:
        raise ProtocolFailed(
            f"a layer of {layer.size} bytes has digest {digest}, expected {layer.digest}",
            hint="the base image or the source is damaged; fetch it again",
        )
