"""Streams of huggingface-hub's HTTP client with a time limit on whole answers.

The client's own time-out starts anew with every byte.  Here the limit applies to each 64 KiB of an
answer, its head included.  The client's library changes with huggingface-hub's version, so it is
wrapped by what all of them have, and nothing of it is imported.
"""

from __future__ import annotations

import time
from typing import Any

from packager.core.errors import Unavailable

PIECE = 64 * 1024


def make_timely(client: Any) -> None:
    """Wrap the connections that a client opens from now on; one of another make stays as it is."""
    transports = (getattr(client, "_transport", None), *getattr(client, "_mounts", {}).values())
    for transport in transports:
        pool = getattr(transport, "_pool", None)
        backend = getattr(pool, "_network_backend", None)
        if backend is not None and not isinstance(backend, _Backend):
            pool._network_backend = _Backend(backend)  # type: ignore[union-attr]


class _Wrapped:
    """Passes on calls that are not wrapped."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Backend(_Wrapped):
    def connect_tcp(self, *places: Any, **options: Any) -> Any:
        return _Stream(self._inner.connect_tcp(*places, **options))


class _Stream(_Wrapped):
    """A connection; what is written begins another question."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._got, self._waited_s = 0, 0.0

    def start_tls(self, *context: Any, **options: Any) -> Any:
        return _Stream(self._inner.start_tls(*context, **options))

    def write(self, *data: Any, **options: Any) -> None:
        self._got, self._waited_s = 0, 0.0
        self._inner.write(*data, **options)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if timeout is None:
            found: bytes = self._inner.read(max_bytes)
            return found
        left_s = timeout - self._waited_s
        if left_s <= 0:
            raise Unavailable(
                f"the hub's answer comes too slowly: {self._got} bytes in {timeout:.0f} s",
                hint="run again later, or check the proxy",
            )
        began = time.monotonic()
        found = self._inner.read(max_bytes, timeout=left_s)
        self._waited_s += time.monotonic() - began
        self._got += len(found)
        if self._got >= PIECE:
            self._got, self._waited_s = 0, 0.0
        return found
