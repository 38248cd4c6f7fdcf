"""Answers that come in time: a byte now and then does not buy more of it.

The time-out of a socket starts anew with every byte, so that a server, or a
proxy on the way, which sends one a minute would be waited for without end.
Here it is for the head, with whatever interim answers come before it, and
then for each piece of the body: a small answer is one piece, and a large one
has a least rate.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

PIECE = 64 * 1024


class TimelyResponse(http.client.HTTPResponse):
    """Reads its socket with the time-out that the socket has when the answer is awaited."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self._timely = _Timely(sock, self.fp.detach())
        self.fp = io.BufferedReader(self._timely)

    def begin(self) -> None:
        """Read the head, all of it in one wait."""
        super().begin()
        self._timely.begin_body()


class _Timely(io.RawIOBase):
    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._sock = sock
        self._raw = raw
        self._patience_s = sock.gettimeout()
        self._waited_s = 0.0  # for this piece; what the reader does in between is not counted
        self._until = time.monotonic() + (self._patience_s or 0.0)  # for the head
        self._got = 0
        self.is_body = False

    def begin_body(self) -> None:
        """Count from here on: what the head took is not of the first piece's time."""
        self.is_body = True
        self._got, self._waited_s = 0, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._patience_s is None:
            return self._raw.readinto(buffer)
        left_s = self._patience_s - self._waited_s
        if not self.is_body:
            left_s = min(left_s, self._until - time.monotonic())
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left_s)
        started_s = time.monotonic()
        try:
            count: int | None = self._raw.readinto(buffer)
        finally:
            self._sock.settimeout(self._patience_s)
        self._waited_s += time.monotonic() - started_s
        self._got += count or 0
        if self.is_body and self._got >= PIECE:
            self._got, self._waited_s = 0, 0.0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
