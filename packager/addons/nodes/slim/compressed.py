"""Tars to layers as they travel: plain, gzip or zstd, as the original was.

A rewritten layer is compressed as the original was.  gzip's bytes depend on zlib, zstd's on its
library: one version of them gives one digest.
"""

from __future__ import annotations

import zlib
from typing import Literal, Protocol

from packager.images.compression import codec, zstd_library

Packing = Literal["none", "gzip", "zstd"]

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
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
    """Return how a layer is compressed, of a type that `check_types` has let pass."""
    suffix = media_type.partition("+")[2]
    if suffix == "zstd":
        codec()  # says what to install
    return "gzip" if suffix == "gzip" else "zstd" if suffix == "zstd" else "none"


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
