"""A port of loopback whose connections are served in threads."""

from __future__ import annotations

import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress


class Listener:
    """Serves each connection in a thread of its own, from `open` to `close`."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self.closed = threading.Event()
        self._connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.host = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def open(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.closed.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in list(self._connections):  # a client that keeps one keeps a thread here
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self.closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
