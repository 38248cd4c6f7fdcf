"""Layers as they travel, to tar and back: plain, gzip or zstd, whichever they are.

A rewritten layer is compressed as the original was.  gzip's bytes depend on zlib, zstd's on its
library: one version of them gives one digest.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Protocol

from packager.core.image import MEDIA_LAYER
from packager.core.units import MIB, decimal
from packager.images.compression import codec, zstd_library
from packager.images.slim.entries import LayerRefused

Packing = Literal["none", "gzip", "zstd"]

MOST_TIMES = 200  # that a layer grows; what is larger holds nothing that anybody serves
ALWAYS_BYTES = 256 * MIB  # that every layer may have
_PIECE = MIB
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
_ZSTD_WINDOW = 128 * MIB  # that decompressing may take; more than `zstd --ultra -22` asks for
_GZIP_HEADER = 31  # zlib's: a window of 32 KiB, with the header and trailer of gzip


class Packer(Protocol):
    """Compresses one stream."""

    def compress(self, data: bytes | memoryview) -> bytes:
        """Return what is ready."""
        ...

    def flush(self) -> bytes:
        """Return the rest."""
        ...


def packing_of(media_type: str) -> Packing:
    """Return how a layer of this type is compressed; raises for a type that is not a tar's."""
    base, _, suffix = media_type.partition("+")
    if base != MEDIA_LAYER or suffix not in ("", "gzip", "zstd"):
        raise LayerRefused(f"its media type is {media_type[:80]!r}")
    if suffix == "zstd":
        codec()  # says what to install
    return "gzip" if suffix == "gzip" else "zstd" if suffix == "zstd" else "none"


def unpacked(chunks: Iterable[memoryview], packing: Packing, size: int) -> Iterator[memoryview]:
    """Yield a layer's tar; raise `LayerRefused` where it grows beyond what `size` bytes hold."""
    most = max(ALWAYS_BYTES, MOST_TIMES * size)
    match packing:
        case "gzip":
            pieces = _gunzip(chunks)
        case "zstd":
            pieces = _unzstd(chunks)
        case "none":
            yield from chunks
            return
    done = 0
    for piece in pieces:
        done += len(piece)
        if done > most:
            raise LayerRefused(f"its {decimal(size)} unpack to more than {decimal(most)}")
        yield memoryview(piece)


def packer_of(packing: Packing) -> Packer | None:
    """Return a compressor; None for a layer that stays plain."""
    match packing:
        case "gzip":
            return zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_HEADER)  # no name, no time
        case "zstd":
            packer: Packer = zstd_library().ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
            return packer
        case "none":
            return None


def _gunzip(chunks: Iterable[memoryview]) -> Iterator[bytes]:
    """Decompress every member of the stream; pigz and containerd write several."""
    member = zlib.decompressobj(_GZIP_HEADER)
    begun = False
    try:
        for chunk in chunks:
            data: bytes | memoryview = chunk
            while len(data):
                if member.eof:
                    member = zlib.decompressobj(_GZIP_HEADER)
                begun = True
                if piece := member.decompress(data, _PIECE):
                    yield piece
                data = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error as error:
        raise LayerRefused(f"its gzip stream is damaged ({error})") from error
    if not (begun and member.eof):
        raise LayerRefused("its gzip stream is cut off")


def _unzstd(chunks: Iterable[memoryview]) -> Iterator[bytes]:
    library = zstd_library()
    source = _Readable(chunks)
    decompressor = library.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    with decompressor.stream_reader(source, read_across_frames=True) as reader:
        while True:
            try:
                piece: bytes = reader.read(_PIECE)
            except library.ZstdError as error:
                raise LayerRefused(f"its zstd stream is damaged ({error})") from error
            if not piece:
                return
            yield piece


class _Readable:
    """Chunks as the file that a stream reader wants."""

    def __init__(self, chunks: Iterable[memoryview]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def read(self, most: int = -1) -> Any:
        if not len(self._rest):
            self._rest = memoryview(bytes(next(self._chunks, b"")))
        taken = self._rest if most < 0 else self._rest[:most]
        self._rest = self._rest[len(taken) :]
        return bytes(taken)
