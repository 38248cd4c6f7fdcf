"""Bodies of requests, read within a size and a time whatever their sender does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from packager.serve.asked import this_request
from packager.serve.refusals import BodyTooLarge, BodyTooSlow, ClientGone, UnreadableBody

MAX_HELD_BYTES = 512 * 1024 * 1024  # of bodies, and of answers of containers, of all requests


class Held:
    """Counts the bytes of bodies and answers that are held for all requests together."""

    def __init__(self) -> None:
        self.size = 0

    @contextmanager
    def part(self) -> Iterator[Part]:
        """Yield what counts for one request; given back at the end of the block."""
        part = Part(self)
        try:
            yield part
        finally:
            self.size -= part.size
            part.size = 0


class Part:
    """What one request holds."""

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
    """Read a body, of which no more is held than `most_bytes` and one piece.

    Raises `BodyTooLarge`, `BodyTooSlow`, `ClientGone`, and `UnreadableBody` where it is not packed
    as its headers say.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(most_s):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > most_bytes:
                    raise BodyTooLarge(f"the request's body has more than {most_bytes} bytes")
    except TimeoutError:
        raise BodyTooSlow("the request's body did not arrive in time") from None
    except web.RequestPayloadError:
        raise UnreadableBody("the request's body is not packed as its headers say") from None
    except ConnectionError:
        raise ClientGone("the connection ended within the request's body") from None
    return bytes(body)
