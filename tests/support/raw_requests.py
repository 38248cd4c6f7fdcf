"""Requests as bytes on a socket, for what no client sends."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

JSON = "application/x-amz-json-1.1"


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """What came back until the connection was closed, or the answer was whole."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def post(
    port: int, body: bytes, *, target: str = "SageMaker.ListOptimizationJobs", **headers: str
) -> RawAnswer:
    """Send a request whose headers are replaced by those given; an empty one is left out."""
    given = {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": JSON,
        "X-Amz-Target": target,
        "Content-Length": str(len(body)),
        "Connection": "close",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
    return send(port, f"POST / HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)


def send(port: int, data: bytes, *, patience_s: float = 20.0) -> RawAnswer:
    """Send bytes and read the answer; status 0 where the connection was closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience_s) as connection:
        with suppress(OSError):  # refused before it was read
            connection.sendall(data)
        return receive(connection)


def receive(connection: socket.socket) -> RawAnswer:
    """Read one answer."""
    found = b""
    try:
        while b"\r\n\r\n" not in found or not _is_whole(found):
            piece = connection.recv(65536)
            if not piece:
                break
            found += piece
    except ConnectionError:
        pass
    if not found:
        return RawAnswer(0, {}, b"")
    head, _, body = found.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return RawAnswer(int(first.split()[1]), headers, body)


def seconds_until_closed(port: int, data: bytes, *, drip_s: float, most_s: float) -> float:
    """Send bytes one by one until the server has closed the connection; return how long it took."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=most_s) as connection:
        connection.settimeout(drip_s)
        for byte in data:
            try:
                connection.sendall(bytes([byte]))
                if connection.recv(1024) == b"":
                    break
            except TimeoutError:
                pass
            except OSError:
                break
            if time.monotonic() - started > most_s:
                break
    return time.monotonic() - started


def _is_whole(found: bytes) -> bool:
    head, _, body = found.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return len(body) >= int(value)
    return False
