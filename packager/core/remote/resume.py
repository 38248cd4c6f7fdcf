"""Long reads over connections that break: taken up again at the byte where they stopped."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Protocol, Self

from packager.core.errors import ModelRefused, PackagerError, Unavailable

CHUNK = 1024 * 1024
ATTEMPTS = 6  # in a row without a chunk of progress
STALL_S = 120.0  # a connection that gives less than a chunk in this time is dropped
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 16.0
_LONGEST_RETRY_AFTER_S = 120.0

OpenAt = Callable[[int], Generator[bytes]]  # offset in the requested range → the rest of it


class BrokenOff(Exception):
    """A transfer ended for a reason that may pass; `failure` is what to say if it does not."""

    def __init__(self, failure: PackagerError, *, retry_after_s: float = 0.0) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.retry_after_s = retry_after_s


def wrong_content(path: str, what: str) -> ModelRefused:
    """Return an error: the bytes that came are not those of the file that was listed."""
    return ModelRefused(
        f"{path!r} is not what was listed: {what}",
        hint="run again: nothing was named; if it stays so, ask the model's publisher",
        code="WrongContent",
    )


class Hash(Protocol):
    """Protocol of hashlib's objects."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...

    def copy(self) -> Self: ...


def read_resumed(
    open_at: OpenAt,
    length: int,
    *,
    what: str,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[bytes]:
    """Yield exactly `length` bytes in chunks. Received bytes are not requested again.

    `open_at` raises `BrokenOff` for what another try may mend; all else ends the read.
    """
    gathered = bytearray()
    done = failures = 0
    while done < length:
        try:
            with closing(open_at(done)) as pieces:
                started = clock()
                for piece in pieces:
                    piece = piece[: length - done]
                    gathered += piece
                    done += len(piece)
                    while len(gathered) >= CHUNK:
                        failures = 0
                        yield bytes(gathered[:CHUNK])
                        del gathered[:CHUNK]
                        started = clock()
                    if clock() - started > STALL_S:
                        raise BrokenOff(Unavailable(f"{what} comes too slowly", hint=_AGAIN))
            if done < length:
                raise BrokenOff(Unavailable(f"{what} ended early, time and again", hint=_AGAIN))
        except BrokenOff as broken:
            failures += 1
            if failures == ATTEMPTS:
                raise broken.failure from broken
            sleep(_pause_s(failures, broken.retry_after_s))
    if gathered:
        yield bytes(gathered)


def proven(chunks: Iterator[bytes], hashed: Hash, expected: str, path: str) -> Iterator[bytes]:
    """Yield chunks, the last one only when all together have the expected digest."""
    held = b""
    for chunk in chunks:
        hashed.update(chunk)
        if held:
            yield held
        held = chunk
    if hashed.hexdigest() != expected:
        raise wrong_content(path, f"its digest is {hashed.hexdigest()}, not {expected}")
    if held:
        yield held


def _pause_s(failures: int, asked_s: float) -> float:
    backoff = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** (failures - 1))
    return max(min(asked_s, _LONGEST_RETRY_AFTER_S), backoff * (0.5 + random.random()))


_AGAIN = "run again: layers that are finished are not read again"
