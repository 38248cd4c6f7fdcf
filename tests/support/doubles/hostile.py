"""A server on loopback that answers what it is told to, byte for byte, and never closes in order.

Real servers cannot be made to send broken heads, bodies that do not end, or one byte a second.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from tests.support.doubles.listening import Listener

Reply = bytes | Iterable[bytes]


@dataclass(frozen=True)
class Request:
    """One request, as far as answers may depend on it."""

    method: str
    path: str  # with its query
    head: str
    body: bytes = b""

    def header(self, name: str) -> str:
        """The value of a header; "" where it was not sent."""
        for line in self.head.split("\r\n")[1:]:
            found, _, value = line.partition(":")
            if found.lower() == name.lower():
                return value.strip()
        return ""


def reply(body: bytes = b"", status: int = 200, **headers: str) -> bytes:
    """Write an answer; `_` in a header's name stands for `-`."""
    lines = [f"HTTP/1.1 {status} Told", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if "Content_Length" not in headers:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def endless(head: bytes, piece: bytes) -> Iterator[bytes]:
    """Write a head, then the same piece for ever."""
    yield head
    while True:
        yield piece


class HostileServer:
    """Use as a context manager. Each connection is one request and its answer."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.sent = 0  # bytes of all answers that a client took
        self._listener = Listener(self._serve)
        self.host = self._listener.host
        self.url = f"http://{self.host}"

    def __enter__(self) -> HostileServer:
        self._listener.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def wait(self, seconds: float) -> None:
        """Wait between two pieces of an answer; not past the end of the test."""
        self._listener.closed.wait(seconds)

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(60)
            request = _received(connection)
            if request is None:
                return
            self.requests.append(request)
            told = self.answer(request)
            for piece in (told,) if isinstance(told, bytes) else told:
                if self._listener.closed.is_set():
                    return
                connection.sendall(piece)
                self.sent += len(piece)


def _received(connection: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    text = head.decode("latin-1")
    method, _, rest = text.partition(" ")
    found = Request(method, rest.partition(" ")[0], text)
    length = found.header("Content-Length")
    while length.isdecimal() and len(body) < int(length):
        more = connection.recv(65536)
        if not more:
            break
        body += more
    return replace(found, body=body)
