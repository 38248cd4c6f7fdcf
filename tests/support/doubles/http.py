"""What doubles that speak HTTP share: servers on loopback, and what their handlers say."""

from __future__ import annotations

import socket
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Server(ThreadingHTTPServer):
    """Serves on a port of loopback from `open` to `close`; handlers find `double` in it."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler], double: Any = None) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.double = double
        self.host = f"127.0.0.1:{self.server_port}"
        self.url = f"http://{self.host}"
        self._connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def open(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """End connections, too: each that a client keeps would keep a thread."""
        self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class Running:
    """Runs its servers while its `with` block does."""

    servers: list[Server]

    def __enter__(self) -> Self:
        for server in self.servers:
            server.open()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.close()


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], double: Any = None) -> Iterator[Server]:
    """Serve while the block runs."""
    server = Server(handler, double)
    server.open()
    try:
        yield server
    finally:
        server.close()


class Handler(BaseHTTPRequestHandler):
    """One connection; keeps quiet."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or a body waits 40 ms for the acknowledgement of its head

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def body(self) -> bytes:
        """Read what the request says that it has."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def say(self, status: int, headers: Mapping[str, str] = {}, body: bytes = b"") -> None:
        """Answer; to HEAD without the body."""
        self.head(status, {**headers, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def chunk(self, data: bytes) -> None:
        """Write one of HTTP's chunks; an empty one is the last."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()
