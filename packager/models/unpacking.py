"""Compressed data, unpacked while it is read, as far as that takes little."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

from packager.core.units import MIB

MAX_UNPACKED = 256 * MIB
MAX_RATIO = 200  # of what is unpacked to what is read, beyond the first MiB
MAX_MEMORY = 256 * MIB  # of a decompressor
PIECE = 64 * 1024
ZSTD_PIECE = 512

_LZ4 = (b"\x04\x22\x4d\x18", b"\x02\x21\x4c\x18")
_ZSTD = b"\x28\xb5\x2f\xfd"


class TooMuch(Exception):
    """The decompressed data exceeds the limit."""


@dataclass(slots=True)
class UnpackingBudget:
    """Bytes that may still be decompressed of one file."""

    left: int = field(default_factory=lambda: MAX_UNPACKED)


class Decompressor(Protocol):
    """Protocol of the decompressors of bz2 and lzma."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zlib:
    """A decompressor of zlib and gzip, with the manners of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class _Zstd:
    """A decompressor of zstd frames, with the manners of the others."""

    def __init__(self) -> None:
        import zstandard

        self._inner: Any = zstandard.ZstdDecompressor(max_window_size=MAX_MEMORY).decompressobj()
        self._packed = self._ready = b""

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof) and not self._ready

    @property
    def needs_input(self) -> bool:
        return not (self._ready or self._packed)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data) + self._packed

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._packed += data
        while self._packed and not self._ready and not self._inner.eof:
            # The library gives all that its input holds, 128 KiB for each 4 bytes at most.
            piece, self._packed = self._packed[:ZSTD_PIECE], self._packed[ZSTD_PIECE:]
            self._ready = self._inner.decompress(piece)
        given, self._ready = self._ready[:max_length], self._ready[max_length:]
        return given


class Unpacked(io.RawIOBase):
    """Unpacks as it is read; going back to the start unpacks anew.

    What is damaged ends where the damage is: a loader gets as far.
    """

    def __init__(self, source: BinaryIO, name: str, make: Make, budget: UnpackingBudget) -> None:
        self._source = source
        self._name = name
        self._make = make
        self._budget = budget
        self._restart()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if (offset, whence) == (0, io.SEEK_CUR):
            return self._unpacked
        if (offset, whence) != (0, io.SEEK_SET):
            raise io.UnsupportedOperation("only the start can be gone back to")
        self._source.seek(0)
        self._restart()
        return 0

    def readinto(self, buffer: Any) -> int:
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _restart(self) -> None:
        self._inner = self._new()
        self._read = self._unpacked = 0
        self._ended = False

    def _new(self) -> Decompressor:
        made = self._make()
        assert made is not None, "it was there before"
        return made

    def _next(self, count: int) -> bytes:
        while not self._ended:
            try:
                packed = self._input()
                data = self._inner.decompress(packed, count)
            except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
                if "emory" in str(error):
                    raise TooMuch(f"{self._name} data that takes too much memory") from error
                break
            except Exception as error:
                if type(error).__name__ != "ZstdError":
                    raise
                break
            if data:
                self._account(len(data))
                return data
        self._ended = True
        return b""

    def _input(self) -> bytes:
        if self._inner.eof:  # one stream may follow another, with zeros in between
            rest = self._inner.unused_data.lstrip(b"\0") or self._fresh().lstrip(b"\0")
            self._ended = not rest
            if rest:
                self._inner = self._new()
            return rest
        if not self._inner.needs_input:
            return b""
        data = self._fresh()
        self._ended = not data
        return data

    def _fresh(self) -> bytes:
        data = self._source.read(PIECE)
        self._read += len(data)
        return data

    def _account(self, count: int) -> None:
        self._unpacked += count
        self._budget.left -= count
        if self._budget.left < 0:
            most = f"{MAX_UNPACKED // MIB} MiB"
            raise TooMuch(f"{self._name} data that unpacks to more than {most}")
        if self._unpacked > MIB and self._unpacked > MAX_RATIO * self._read:
            most = f"{MAX_RATIO} times its size"
            raise TooMuch(f"{self._name} data that unpacks to more than {most}")


def _is_zlib(head: bytes) -> bool:
    plain = len(head) > 1 and head[0] & 0x0F == 8 and head[0] >> 4 <= 7 and not head[1] & 0x20
    return plain and int.from_bytes(head[:2], "big") % 31 == 0


def _xz() -> Decompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=MAX_MEMORY)


def _zstd() -> Decompressor | None:
    try:
        return _Zstd()
    except ImportError:
        return None


def _is_skippable(head: bytes) -> bool:
    """An empty frame of zstd or lz4, which may precede others."""
    return len(head) >= 8 and head[0] >> 4 == 5 and head[1:4] == b"\x2a\x4d\x18"


Make = Callable[[], Decompressor | None]  # None: the library is missing
FORMATS: tuple[tuple[str, Callable[[bytes], bool], Make], ...] = (
    ("gzip", lambda head: head.startswith(b"\x1f\x8b"), _Zlib),
    ("zlib", _is_zlib, _Zlib),
    ("bzip2", lambda head: head.startswith(b"BZh"), bz2.BZ2Decompressor),
    ("xz", lambda head: head.startswith((b"\xfd7zXZ\0", b"\x5d\0")), _xz),
    ("zstd", lambda head: head.startswith(_ZSTD) or _is_skippable(head), _zstd),
    ("lz4", lambda head: head.startswith(_LZ4), lambda: None),
)
