"""Uncompressed bytes of a layer as it streams by, within bounds that its giver cannot move.

No document of an image says how large a layer is when unpacked, so the bound follows from the
size that the manifest states: what grows to more than `MOST_GROWTH` times that is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from artifact_cache.distribution import install_command
from packager.core.errors import PackagerError, UsageError
from packager.core.image import MEDIA_LAYER, Layer
from packager.core.units import MIB, decimal

MOST_GROWTH = 100  # layers of programs grow to 2 to 5 times their size, of text to 20 times
_ALWAYS_ALLOWED = 256 * MIB
_PIECE = MIB
_ZSTD_WINDOW = 128 * MIB  # what `zstd --long` needs at most

_PACKINGS = ("", "+gzip", "+zstd")

Chunks = Iterable[memoryview]


def layer_broken(digest: str, reason: str) -> PackagerError:
    """Return an error: a layer is broken, of another digest, or a bomb."""
    return PackagerError(
        f"layer {digest} cannot be used: {reason}",
        hint="the image is damaged, or was made to do harm: have it built or pushed again",
        code="LayerBroken",
        exit_code=65,
    )


def layer_of_no_engine(layer: Layer) -> PackagerError:
    """Return an error: a layer is of a type that engines do not unpack, or cannot fetch."""
    reason = f"container engines do not unpack its type {layer.media_type[:100]!r}"
    return PackagerError(
        f"layer {layer.digest} cannot be used: {reason}",
        hint="name an image of tar layers, plain or compressed with gzip or zstd",
        code="LayerOfNoEngine",
        exit_code=65,
    )


def check_types(layers: Sequence[Layer]) -> None:
    """Refuse layers that no engine unpacks: foreign and encrypted ones, and files that are no tar.

    Raises `PackagerError`.
    """
    for layer in layers:
        base, plus, packing = layer.media_type.partition("+")
        if base != MEDIA_LAYER or plus + packing not in _PACKINGS:
            raise layer_of_no_engine(layer)


def is_compressed(media_type: str) -> bool:
    """Return whether a layer of this type is unpacked before its tar can be read."""
    return media_type.endswith(("+gzip", ".gzip", "+zstd"))


def unpack(chunks: Chunks, media_type: str, digest: str, stated_size: int) -> Chunks:
    """Yield a layer's uncompressed bytes; raise `PackagerError` for what cannot be unpacked.

    A chunk is valid until the next one is requested.
    """
    if not is_compressed(media_type):
        return chunks
    opened = _zstd if media_type.endswith("+zstd") else _gzip
    most = max(_ALWAYS_ALLOWED, MOST_GROWTH * stated_size)
    return _bounded(opened(chunks, digest), digest, most)


def _bounded(chunks: Chunks, digest: str, most: int) -> Iterator[memoryview]:
    passed = 0
    for chunk in chunks:
        passed += len(chunk)
        if passed > most:
            raise layer_broken(
                digest,
                f"it unpacks to more than {decimal(most)}, over {MOST_GROWTH} times its size",
            )
        yield chunk


def _gzip(chunks: Chunks, digest: str) -> Iterator[memoryview]:
    """Unpack gzip, of one member or several."""
    engine = zlib.decompressobj(wbits=31)
    begun = False
    try:
        for chunk in chunks:
            rest: bytes | memoryview = chunk
            while len(rest):
                if engine.eof:
                    engine, begun = zlib.decompressobj(wbits=31), False
                piece = engine.decompress(rest, _PIECE)
                begun = True
                if piece:
                    yield memoryview(piece)
                rest = engine.unused_data if engine.eof else engine.unconsumed_tail
        if not begun:
            raise layer_broken(digest, "its gzip stream ends early")
        while not engine.eof:
            piece = engine.decompress(engine.unconsumed_tail, _PIECE)
            if not piece:
                raise layer_broken(digest, "its gzip stream ends early")
            yield memoryview(piece)
    except zlib.error as error:
        raise layer_broken(digest, f"its gzip stream is broken: {error}") from error


def _zstd(chunks: Chunks, digest: str) -> Iterator[memoryview]:
    """Unpack zstd, of one frame or several."""
    library = _library()
    source = _Source(chunks)
    engine = library.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    reader = engine.stream_reader(source, read_size=_PIECE, read_across_frames=True)
    try:
        while piece := reader.read(_PIECE):
            yield memoryview(piece)
    except library.ZstdError as error:
        raise layer_broken(digest, f"its zstd stream is broken: {error}") from error


class _Source:
    """Chunks as a file that is read from, as the library wants it."""

    def __init__(self, chunks: Chunks) -> None:
        self._next: Callable[[], memoryview | None] = lambda: next(iterator, None)
        iterator = iter(chunks)
        self._left = b""

    def read(self, count: int) -> bytes:
        """Return the next bytes, at most so many; none at the end."""
        while not self._left:
            chunk = self._next()
            if chunk is None:
                return b""
            self._left = bytes(chunk)
        taken, self._left = self._left[:count], self._left[count:]
        return taken


def _library() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise UsageError(
            "a layer is compressed with zstd, and zstandard is not installed",
            hint=f"install it with `{install_command('zstandard', 'zstd')}`",
        ) from error
    return zstandard
