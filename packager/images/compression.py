"""zstd compression of layers while they are read: on request, or where samples show a gain.

The compressed bytes depend on the library's version, so the digest index stores it with each
compressed layer.  One thread and a fixed level: equal layers give equal bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from artifact_cache.distribution import install_command
from packager.core.errors import UsageError
from packager.core.image import MEDIA_LAYER, Blob, Inline, RemoteRange, Segment
from packager.core.units import MIB
from packager.images.blobs import BlobReader

MEDIA_COMPRESSED = MEDIA_LAYER + "+zstd"
LEVEL = 1  # 0.7 to 1 GB/s on weights; higher ones shrink them hardly more
WORTH_IT = 0.9  # of the size: below it, unpacking costs less than the transfer
SAMPLES = 16
SAMPLE_BYTES = MIB


def not_for_engines() -> UsageError:
    """Return an error: zstd layers were requested for a Docker Engine that may be too old to unpack

    them.
    """
    return UsageError(
        "Docker Engines before version 23 cannot unpack layers compressed with zstd",
        hint="leave --compression out for docker: outputs: nothing crosses a network there",
        code="NotForEngines",
    )


class ZstdCompressor:
    """Compresses one layer of `size` bytes as it is read; hashes what comes out."""

    def __init__(self, size: int) -> None:
        self._compressing = (
            zstd_library()
            .ZstdCompressor(level=LEVEL, write_content_size=True, write_checksum=False)
            .compressobj(size=size)
        )
        self._hashed = hashlib.sha256()
        self.size = 0

    def compress(self, chunk: memoryview) -> memoryview:
        """Compress the next bytes and return those that are ready; often none are."""
        return self._out(self._compressing.compress(chunk))

    def flush(self) -> memoryview:
        """Return the rest of the compressed bytes."""
        return self._out(self._compressing.flush())

    @property
    def digest(self) -> str:
        return "sha256:" + self._hashed.hexdigest()

    def _out(self, compressed: bytes) -> memoryview:
        self._hashed.update(compressed)
        self.size += len(compressed)
        return memoryview(compressed)


@cache
def codec() -> str:
    """Return the codec, library version and level: what decides the compressed bytes of a layer."""
    library = zstd_library()
    version = ".".join(str(part) for part in library.ZSTD_VERSION)
    return f"zstd-{version}-{LEVEL}"


def is_worth_it(blob: Blob, reader: BlobReader) -> bool:
    """Compress samples from all over the blob; return whether they shrink by at least 10 %."""
    compressor = zstd_library().ZstdCompressor(level=LEVEL)
    taken = compressed = 0
    for sample in _samples(blob):
        data = reader.read(sample)
        taken += len(data)
        compressed += len(compressor.compress(data))
    return taken > 0 and compressed <= WORTH_IT * taken


def _samples(blob: Blob) -> Iterator[Blob]:
    """Yield equally spaced pieces of a blob; the whole blob where it is small."""
    size = blob.size
    if size <= SAMPLES * SAMPLE_BYTES:
        yield blob
        return
    for number in range(SAMPLES):
        yield _cut(blob, (size - SAMPLE_BYTES) * number // (SAMPLES - 1), SAMPLE_BYTES)


def _cut(blob: Blob, start: int, length: int) -> Blob:
    segments: list[Segment] = []
    position = 0
    for segment in blob.segments:
        first = max(start - position, 0)
        count = min(start + length - position, segment.length) - first
        position += segment.length
        if count > 0:
            segments.append(_part(segment, first, count))
    return Blob(tuple(segments))


def _part(segment: Segment, first: int, count: int) -> Segment:
    if isinstance(segment, Inline):
        return Inline(segment.data[first : first + count])
    changed: dict[str, Any] = {"offset": segment.offset + first, "length": count}
    if isinstance(segment, RemoteRange):
        changed["in_order"] = False  # a quick test, without proof
    return replace(segment, **changed)


@cache
def zstd_library() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise UsageError(
            "compressed layers need zstandard, which is not installed",
            hint=f"install it with `{install_command('zstandard', 'zstd')}`, "
            "or leave --compression out",
        ) from error
    return zstandard
