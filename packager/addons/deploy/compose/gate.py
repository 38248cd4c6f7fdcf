"""Connections of a front's clients; it is copied beside the front, and needs Python 3.9 alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class Gate:
    """Connections of clients: how many there are, and which of them wait for a request.

    Where there are too many, the one that has waited longest makes room.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[asyncio.StreamWriter, str] = {}
        self._waiting: dict[asyncio.StreamWriter, None] = {}  # the longest first

    def admit(self, writer: asyncio.StreamWriter) -> bool:
        """Count a connection; return whether there is room for it."""
        client = str((writer.get_extra_info("peername") or ("",))[0])
        full = len(self._open) >= self._most
        if full or list(self._open.values()).count(client) >= self._most // 2:
            mine = (one for one in self._waiting if full or self._open.get(one) == client)
            if (oldest := next(mine, None)) is None:
                return False
            oldest.transport.abort()
            self.release(oldest)
        self._open[writer] = client
        return True

    def release(self, writer: asyncio.StreamWriter) -> None:
        """Count a connection no longer."""
        self._waiting.pop(writer, None)
        self._open.pop(writer, None)

    @contextlib.contextmanager
    def waiting(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """Mark a connection as one that waits for a request."""
        self._waiting[writer] = None
        try:
            yield
        finally:
            self._waiting.pop(writer, None)
