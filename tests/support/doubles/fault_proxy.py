"""A proxy on loopback that breaks HTTP in chosen places.

It stands between a client and any server that speaks plain HTTP/1.1: a real registry, the fake
one, an S3 or Hub server.  The client is given `proxy.url` or `proxy.host` as the server's address;
`Host` is passed on, so that servers which make addresses from it lead back here.

    with FaultProxy(registry) as proxy:
        proxy.add(Fault("reset", method="PATCH", at=1000))
        ...push to proxy.host...
    assert proxy.faults[0].hits == 1

A `Fault` applies to requests by method and by a regular expression for path and query, after the
first `skip` of them, `times` times.  What it can do:

    answer      with `status` and `headers` instead of the server's answer, after `at` bytes of
                the body (-1: all of it); the server hears nothing of the request
    reset       both sides after `at` bytes of the request's body
    stall       take nothing more after `at` bytes of the request's body
    drop        the answer: the server has done what was asked, the client sees a reset
    half-close  say goodbye instead of passing the answer on, and go on listening
    delay       the answer by `seconds`
    dribble     the answer byte by byte, each after `seconds`
    flip        the byte of the answer's body that comes after `at` others
    truncate    the answer's body after `at` bytes, with an orderly end
    cut         the answer's body after `at` bytes, with a reset

A negative `at` counts from the end of the body; of one in chunks it is the end.  A fault with a
place that the body does not have waits for the next body.  Offsets count bytes on the wire, so
chunk headers count, too.

`Expect: 100-continue` is answered here and not passed on: a fault in "the answer" is then in the
final one, whatever the client.  `exchanges` lists what came, in order, and how many bytes of it.
"""

from __future__ import annotations

import re
import select
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from tests.support.doubles.listening import Listener

Action = Literal[
    "answer", "reset", "stall", "drop", "half-close", "delay", "dribble", "flip", "truncate", "cut"
]
_PIECE = 64 * 1024
_LONGEST_WAIT_S = 120.0
_LAST_CHUNK = b"0\r\n"
_BEFORE_THE_END = -1  # of a body in chunks, whose length nobody knows
_BODYLESS = (204, 304)


@dataclass
class Fault:
    """What goes wrong, where, and how often. See the module."""

    do: Action
    method: str = ""
    path: str = ""
    skip: int = 0
    times: int = 1
    at: int = 0
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = _LONGEST_WAIT_S
    hits: int = 0
    seen: int = 0


@dataclass
class Exchange:
    """One request as far as it got."""

    method: str
    path: str  # with the query
    headers: Mapping[str, str]  # names in lower case
    sent: int = 0  # bytes of the body that were taken from the client
    status: int = 0  # that the client was given; 0: none
    fault: str = ""


class FaultProxy:
    """Runs while its `with` block does."""

    def __init__(self, host: str) -> None:
        address, _, port = host.rpartition(":")
        self._upstream = (address, int(port))
        self.faults: list[Fault] = []
        self.exchanges: list[Exchange] = []
        self._lock = threading.Lock()
        self._listener = Listener(lambda connection: self._serve(_Line(connection)))
        self.host = self._listener.host
        self.url = f"http://{self.host}"

    def __enter__(self) -> FaultProxy:
        self._listener.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def add(self, *faults: Fault) -> None:
        self.faults += faults

    def requests(self, method: str, path: str = "") -> list[Exchange]:
        """What came by method, and by a regular expression for the path."""
        return [
            seen for seen in self.exchanges if seen.method == method and re.search(path, seen.path)
        ]

    def _serve(self, client: _Line) -> None:
        """Pass on one request after another, each over a connection of its own."""
        try:
            while head := client.head():
                if not self._exchange(client, *head):
                    return
        except OSError:
            pass
        finally:
            client.close()

    def _exchange(self, client: _Line, first: str, headers: dict[str, str]) -> bool:
        """Pass on one request. False when the connection is of no more use."""
        method, path, _ = first.split(" ", 2)
        exchange = Exchange(method, path, headers)
        with self._lock:
            self.exchanges.append(exchange)
        fault = self._fault_for(exchange)
        do = fault.do if fault else ""
        body = client.body(headers, until_close=False)
        length = int(headers.get("content-length") or 0)
        if fault and do == "answer" and self._claim(fault, exchange):
            return self._answer(client, fault, exchange, body, length)
        if headers.pop("expect", ""):
            client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        place = None
        if fault and do in ("reset", "stall"):
            place = _place(fault.at, length if "content-length" in headers else None)
            if fault.at < 0 and "chunked" in headers.get("transfer-encoding", ""):
                place = _BEFORE_THE_END
        upstream = _Line(socket.create_connection(self._upstream, timeout=_LONGEST_WAIT_S))
        try:
            upstream.send_head(first, {**headers, "connection": "close"})
            whole = self._pass_body(upstream, exchange, body, place, fault)
            if fault and whole is None:
                if do == "stall":
                    self._listener.closed.wait(fault.seconds)
                for line in (client, upstream):
                    line.reset()
                return False
            return self._pass_answer(client, upstream, exchange, fault) and bool(whole)
        finally:
            upstream.close()

    def _pass_body(
        self,
        upstream: _Line,
        exchange: Exchange,
        body: Iterator[bytes],
        place: int | None,
        fault: Fault | None,
    ) -> bool | None:
        """True: all of it was sent. False: the server answered before. None: the fault is here.

        Of several bodies on their way to a fault that happens once, the others go on.
        """
        if place == 0:
            if fault and self._claim(fault, exchange):
                return None
            place = None
        for piece in body:
            if select.select([upstream.sock], [], [], 0)[0]:
                return False
            at_the_end = place == _BEFORE_THE_END and piece == _LAST_CHUNK
            in_here = place is not None and 0 <= place <= exchange.sent + len(piece)
            if fault and (at_the_end or in_here):
                if self._claim(fault, exchange):
                    if place is not None and in_here:
                        upstream.send(piece[: place - exchange.sent])
                        exchange.sent = place
                    return None
                place = None
            try:
                upstream.send(piece)
            except OSError:
                return False
            exchange.sent += len(piece)
        return True

    def _pass_answer(
        self, client: _Line, upstream: _Line, exchange: Exchange, fault: Fault | None
    ) -> bool:
        do = fault.do if fault else ""
        head = upstream.head()
        while head and head[0].split(" ", 2)[1].startswith("1"):
            head = upstream.head()
        if head is None:
            client.reset()
            return False
        first, headers = head
        status = int(first.split(" ", 2)[1])
        headers.pop("connection", None)
        bodyless = exchange.method == "HEAD" or status in _BODYLESS
        body: Iterator[bytes] = iter(()) if bodyless else upstream.body(headers, until_close=True)
        if fault and do in ("drop", "half-close") and self._claim(fault, exchange):
            for _ in body:
                pass  # the server must see that it was heard
            if do == "drop":
                client.reset()
            else:
                client.sock.shutdown(socket.SHUT_WR)
                self._listener.closed.wait(fault.seconds)
            return False
        if fault and do == "delay" and self._claim(fault, exchange):
            self._listener.closed.wait(fault.seconds)
        exchange.status = status
        framed = bodyless or {"content-length", "transfer-encoding"} & set(headers)
        if fault and do == "dribble" and self._claim(fault, exchange):
            return self._dribble(client, first, headers, body, fault.seconds)
        client.send_head(first, headers)
        length = None if bodyless else headers.get("content-length")
        place = None
        if fault and do in ("flip", "truncate", "cut") and length is not None:
            place = _place(fault.at, int(length))
        done = 0
        for piece in body:
            here = place is not None and done <= place < done + len(piece)
            if fault and place is not None and here and self._claim(fault, exchange):
                split = place - done
                if do != "flip":
                    client.send(piece[:split])
                    client.close() if do == "truncate" else client.reset()
                    return False
                client.send(piece[:split] + bytes([piece[split] ^ 0xFF]) + piece[split + 1 :])
            else:
                client.send(piece)
            done += len(piece)
        return bool(framed)

    def _answer(
        self, client: _Line, fault: Fault, exchange: Exchange, body: Iterator[bytes], length: int
    ) -> bool:
        """Answer ourselves, after some of the body or after all of it."""
        headers = {"content-length": "0", **{k.lower(): v for k, v in fault.headers.items()}}
        early = 0 <= fault.at < length
        if "expect" in exchange.headers and not early:
            client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while exchange.sent < fault.at or not early:
            piece = next(body, b"")
            exchange.sent += len(piece)
            if not piece:
                break
        exchange.status = fault.status
        if early:
            headers["connection"] = "close"
        client.send_head(f"HTTP/1.1 {fault.status} Fault", headers)
        if early:
            client.sock.shutdown(socket.SHUT_WR)
            client.sock.settimeout(_LONGEST_WAIT_S)
            with suppress(OSError):  # closing with unread bytes would reset the answer away
                while exchange.sent < length and client.sock.recv(_PIECE):
                    pass
        return not early

    def _dribble(
        self,
        client: _Line,
        first: str,
        headers: dict[str, str],
        body: Iterator[bytes],
        seconds: float,
    ) -> bool:
        whole = _head_bytes(first, headers) + b"".join(body)
        for byte in whole:
            client.send(bytes([byte]))
            if self._listener.closed.wait(seconds):
                return False
        return False

    def _fault_for(self, exchange: Exchange) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.hits >= fault.times or fault.method not in ("", exchange.method):
                    continue
                if not re.search(fault.path, exchange.path):
                    continue
                fault.seen += 1
                if fault.seen > fault.skip:
                    return fault
        return None

    def _claim(self, fault: Fault, exchange: Exchange) -> bool:
        with self._lock:
            if fault.hits >= fault.times:
                return False
            fault.hits += 1
            exchange.fault = fault.do
            return True


class _Line:
    """One side of a connection, read piece by piece."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._waiting = b""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(_LONGEST_WAIT_S)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_head(self, first: str, headers: Mapping[str, str]) -> None:
        self.send(_head_bytes(first, headers))

    def head(self) -> tuple[str, dict[str, str]] | None:
        """The first line and the headers; None at the end of the connection."""
        first = self._text_line()
        if not first:
            return None
        headers: dict[str, str] = {}
        while line := self._text_line().rstrip("\r\n"):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return first.rstrip("\r\n"), headers

    def body(self, headers: Mapping[str, str], *, until_close: bool) -> Iterator[bytes]:
        """The body as it is on the wire."""
        if "chunked" in headers.get("transfer-encoding", ""):
            while line := self._text_line():
                yield line.encode("latin-1")
                size = int(line.split(";")[0], 16)
                if not size:
                    while line not in ("\r\n", ""):
                        line = self._text_line()
                        yield line.encode("latin-1")
                    return
                yield from self._take(size + 2)
        elif "content-length" in headers:
            yield from self._take(int(headers["content-length"]))
        elif until_close:
            while piece := self._up_to(_PIECE):
                yield piece

    def reset(self) -> None:
        """Close so that the other side sees a reset, not an end."""
        with suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.sock.close()

    def _take(self, count: int) -> Iterator[bytes]:
        while count:
            piece = self._up_to(min(count, _PIECE))
            if not piece:
                raise ConnectionResetError
            count -= len(piece)
            yield piece

    def _up_to(self, count: int) -> bytes:
        """At most `count` bytes; none at the end of the connection."""
        if not self._waiting:
            self._waiting = self.sock.recv(_PIECE)
        piece, self._waiting = self._waiting[:count], self._waiting[count:]
        return piece

    def _text_line(self) -> str:
        while b"\n" not in self._waiting:
            more = self.sock.recv(_PIECE)
            if not more:
                return ""
            self._waiting += more
        line, _, self._waiting = self._waiting.partition(b"\n")
        return line.decode("latin-1") + "\n"


def _head_bytes(first: str, headers: Mapping[str, str]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _place(at: int, length: int | None) -> int | None:
    """Where in a body of `length` a fault is; None when it is not in it."""
    if length is None:
        return at if at >= 0 else None
    place = length + at if at < 0 else at
    return place if 0 <= place < max(length, 1) else None
