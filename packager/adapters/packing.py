"""Layers made smaller on their way: zstd, where it is asked for or samples say that it helps.

The bytes depend on the library's version, so what is remembered of packed
layers names it.  One thread and a fixed level: equal layers give equal bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from packager.adapters.blobs import BlobReader
from packager.core.image import MEDIA_LAYER, Blob, Inline, RemoteRange, Segment
from packager.core.units import MIB
from packager.errors import UsageError

MEDIA_PACKED = MEDIA_LAYER + "+zstd"
LEVEL = 1  # 0.7 to 1 GB/s on weights; higher ones shrink them hardly more
WORTH_IT = 0.9  # of the size: below it, unpacking costs less than the transfer
SAMPLES = 16
SAMPLE_BYTES = MIB


class NotForEngines(UsageError):
    """An engine that may be old would be given layers compressed with zstd."""

    def __init__(self) -> None:
        super().__init__(
            "Docker Engines before version 23 cannot unpack layers compressed with zstd",
            hint="leave --compression out for docker: outputs: nothing crosses a network there",
        )


class Packer:
    """Compresses one layer of `size` bytes as it is read; hashes what comes out."""

    def __init__(self, size: int) -> None:
        self._packing = (
            _library()
            .ZstdCompressor(level=LEVEL, write_content_size=True, write_checksum=False)
            .compressobj(size=size)
        )
        self._hashed = hashlib.sha256()
        self.size = 0

    def pack(self, chunk: memoryview) -> memoryview:
        """Take the next bytes and give those that are ready; often none are."""
        return self._out(self._packing.compress(chunk))

    def finish(self) -> memoryview:
        """Give the rest."""
        return self._out(self._packing.flush())

    @property
    def digest(self) -> str:
        return "sha256:" + self._hashed.hexdigest()

    def _out(self, packed: bytes) -> memoryview:
        self._hashed.update(packed)
        self.size += len(packed)
        return memoryview(packed)


@cache
def codec() -> str:
    """Name what decides the packed bytes beside the layer's own."""
    library = _library()
    version = ".".join(str(part) for part in library.ZSTD_VERSION)
    return f"zstd-{version}-{LEVEL}"


def is_worth_it(blob: Blob, reader: BlobReader) -> bool:
    """Pack samples from all over the blob, and see whether the whole would become smaller."""
    packer = _library().ZstdCompressor(level=LEVEL)
    taken = packed = 0
    for sample in _samples(blob):
        data = reader.read(sample)
        taken += len(data)
        packed += len(packer.compress(data))
    return taken > 0 and packed <= WORTH_IT * taken


def _samples(blob: Blob) -> Iterator[Blob]:
    """Cut equally spaced pieces out of a blob; all of a small one."""
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
        changed["in_order"] = False  # a look at it, which proves nothing and need not
    return replace(segment, **changed)


@cache
def _library() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise UsageError(
            "compressed layers need zstandard, which is not installed",
            hint="install it with `pip install 'packager[zstd]'`, or leave --compression out",
        ) from error
    return zstandard
