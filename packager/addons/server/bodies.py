"""Bodies of requests, read within a size and a time whatever their sender does."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from packager.addons.server.refusals import BodyTooLarge, BodyTooSlow, client_gone, unreadable_body
from packager.addons.server.request_context import this_request

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # by its first bytes
MAX_HELD_BYTES = 512 * 1024 * 1024  # of bodies, and of answers of containers, of all requests


class Held:
    """Counts the bytes of bodies and answers that are held for all requests together."""

    def __init__(self) -> None:
        self.size = 0

    @contextmanager
    def part(self) -> Iterator[Part]:
        """Yield a counter for one request; its bytes are released at the end of the block."""
        part = Part(self)
        try:
            yield part
        finally:
            self.size -= part.size
            part.size = 0


class Part:
    """Bytes held for one request."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self.size = 0  # bytes

    def grow(self, size: int) -> bool:
        """Return whether so many bytes more fit, which then count."""
        if self._held.size + size > MAX_HELD_BYTES:
            return False
        self._held.size += size
        self.size += size
        return True


async def body_of(request: web.Request, most_bytes: int, most_s: float) -> bytes:
    """Return the body of the request that is being answered; later readers get the same bytes.

    Raises as `read_limited`.
    """
    asked = this_request()
    if asked.body is None:
        asked.body = await read_limited(request, most_bytes, most_s)
    return asked.body


async def read_limited(request: web.Request, most_bytes: int, most_s: float) -> bytes:
    """Read a body and decompress it, holding at most `most_bytes` and one chunk.

    Raises `BodyTooLarge`, `BodyTooSlow`, `ApiRefusal` where its compression
    differs from its headers.
    """
    body, unpack = bytearray(), _Unpacking(request.headers.get("Content-Encoding", ""))
    try:
        async with asyncio.timeout(most_s):
            async for piece in request.content.iter_any():
                body += unpack.feed(piece, most_bytes + 1 - len(body))
                if len(body) > most_bytes:
                    raise BodyTooLarge(f"the request's body has more than {most_bytes} bytes")
        unpack.finish()
    except TimeoutError:
        raise BodyTooSlow("the request's body did not arrive in time") from None
    except (web.RequestPayloadError, zlib.error):
        raise unreadable_body("the request's body is not packed as its headers say") from None
    except ConnectionError:
        raise client_gone("the connection ended within the request's body") from None
    return bytes(body)


class _Unpacking:
    """Decompresses a body by its Content-Encoding: gzip, deflate, or none."""

    def __init__(self, encoding: str) -> None:
        self._name = encoding.strip().lower()
        if self._name not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise unreadable_body(
                f"the request's body is packed as {encoding[:40]!r}; send gzip, deflate or neither"
            )
        self._inner = None if self._name in ("", "identity") else zlib.decompressobj(_GZIP_OR_ZLIB)

    def feed(self, data: bytes, most: int) -> bytes:
        """Return what becomes of a piece, at most so many bytes; raises `zlib.error`."""
        if self._inner is None:
            return data
        found = self._inner.decompress(data, most)
        if self._inner.unused_data:
            raise zlib.error("something follows")
        return found

    def finish(self) -> None:
        """Raise `zlib.error` where the packing has not come to its end."""
        if self._inner is not None and not self._inner.eof:
            raise zlib.error("it is cut off")
