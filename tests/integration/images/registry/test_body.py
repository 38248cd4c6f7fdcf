"""Pieces of a body in HTTP's own chunks: whole on the wire, however few bytes a call takes."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from packager.images.registry.body import BodyRequest
from packager.images.registry.transport import Transport

PIECE = bytes(range(256)) * 4096  # 1 MiB


class Counted(socket.socket):
    """A socket that counts what is handed to the system, and takes at most so many bytes a call."""

    most = 1 << 30
    calls = 0

    def sendmsg(self, buffers: Any, *more: Any) -> int:  # type: ignore[override]
        self.calls += 1
        return super().send(b"".join(buffers)[: self.most], *more)

    def sendall(self, data: Any, *more: Any) -> None:
        self.calls += 1
        super().sendall(data, *more)


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve one connection; give the address of an upload."""
    socket_ = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        connection, _ = socket_.accept()
        with connection:
            serve(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{socket_.getsockname()[1]}/upload"
    thread.join(30)
    socket_.close()


@pytest.fixture
def server() -> Iterator[tuple[str, list[bytes]]]:
    """A server that reads one request to its end and answers 202; the body's bytes."""
    bodies: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            while stream.readline().strip():
                pass
            body = io.BytesIO()
            while length := int(stream.readline(), 16):
                body.write(stream.read(length))
                assert stream.read(2) == b"\r\n"
            assert stream.readline() == b"\r\n"
            bodies.append(body.getvalue())
            connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")

    with listening(serve) as url:
        yield url, bodies


def send(url: str, most: int) -> tuple[int, int]:
    """Send two pieces and one byte; the answer's status and the number of calls."""
    request = BodyRequest(Transport(), "PATCH", url, {}, None, stall_timeout_s=30)
    plain = request.connection.sock
    counted = Counted(fileno=plain.detach())
    counted.settimeout(30)
    counted.most = most
    request.connection.sock = counted
    for piece in (PIECE, PIECE[::-1], b"!"):
        request.send(memoryview(piece))
    calls = counted.calls
    status = request.finish(30).status
    request.close()
    return status, calls


@pytest.mark.parametrize("most", [1, 4, 8, 9, 1000, len(PIECE) + 8, len(PIECE) + 9, 1 << 30])
def test_a_piece_goes_out_in_one_call_with_its_length_and_what_that_did_not_take_follows(
    server: tuple[str, list[bytes]], most: int
) -> None:
    """Two more calls a piece woke the registry for a few bytes, and threads for each other."""
    url, bodies = server

    status, calls = send(url, most)

    assert status == 202
    assert bodies == [PIECE + PIECE[::-1] + b"!"]
    assert calls == 3 or most < 1 << 30


@pytest.fixture
def silent() -> Iterator[tuple[str, threading.Event]]:
    """A server that reads nothing before the event is set, then everything."""
    goes_on = threading.Event()

    def serve(connection: socket.socket) -> None:
        goes_on.wait(30)
        while connection.recv(1 << 20):
            pass

    with listening(serve) as url:
        yield url, goes_on
        goes_on.set()


@pytest.mark.parametrize("length", [None, 1 << 30], ids=["chunks", "length"])
def test_a_peer_that_reads_no_more_is_a_time_out(
    silent: tuple[str, threading.Event], length: int | None
) -> None:
    url, _ = silent
    request = BodyRequest(Transport(), "PATCH", url, {}, length, stall_timeout_s=0.5)
    started = time.monotonic()

    with pytest.raises(TimeoutError):
        for _ in range(1024):
            request.send(memoryview(PIECE))

    assert 0.4 < time.monotonic() - started < 20
    request.close()


def test_a_piece_that_waits_for_room_goes_out_whole(silent: tuple[str, threading.Event]) -> None:
    """With a time-out of Python's it left in as many calls as the peer made room."""
    url, goes_on = silent
    request = BodyRequest(Transport(), "PATCH", url, {}, None, stall_timeout_s=30)
    counted = Counted(fileno=request.connection.sock.detach())
    request.connection.sock = counted
    threading.Timer(0.5, goes_on.set).start()

    for _ in range(32):  # far more than the system keeps for a connection
        request.send(memoryview(PIECE))

    assert counted.calls == 32
    request.close()
