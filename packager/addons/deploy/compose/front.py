"""An HTTP front: one port, and servers behind it that may change while requests run.

It is copied beside the compose file, with h11 and the modules that it imports of ours, and runs in
a container of the served image, by Python 3.9.  Which servers there are is in a file, which is read
again when it was replaced; a server that is no longer named gets no new request and ends those that
it has.  Each request has a connection of its own, so a server that stops loses none.

h11 reads and writes HTTP (RFC 9112): what is passed on is written anew, so that no two readers see
two ends of one message.  A server is asked once a request is here as a whole, within limits of size
and time; its answer goes to the client as it comes, no faster than the client reads, and ends with
the client.  Upgrades are not passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

if __name__ == "__main__":  # -I leaves out the directory of the program
    sys.path.insert(0, str(Path(__file__).parent))

import h11

from packager.addons.deploy.compose.gate import Gate
from packager.core.capture.http import HttpCapture, KeptAnswer, capture_of
from packager.core.capture.settings import VARIABLE

STATE = "/.packager/front"  # which servers answer, and how many requests each has
_HEAD = 32 * 1024  # bytes of a request line with its headers, or of an answer's
_HEAD_S = 10.0  # for a head, from its first byte on; and for the first byte of a connection
_IDLE_S = 75.0  # between two requests of a connection
_BODY = 64 * 1024**2  # bytes of a request's body
_BODIES = 128 * 1024**2  # bytes of all bodies that no server has yet
_BODY_S = 30.0  # for a body, and more for what has arrived at the least rate
_LEAST_RATE = 64 * 1024  # bytes a second
_STALL_S = 60.0  # in which a peer takes nothing
_CONNECTIONS = 2048  # of clients; half of them for one address
_PIECE = 64 * 1024  # bytes that are read at once
_LINGER_S = 1.0  # a client that still sends hears why it is refused
_CONNECT_S = 5.0
_WAIT_S = 60.0  # for a server, while none takes connections
_RETRY_S = 0.1
_READY_S = 5.0
# RFC 9110, 7.6.1; 100-continue is answered here, and trailers are not passed on.
_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding")
    + (b"upgrade", b"expect", b"http2-settings", b"proxy-authenticate", b"proxy-authorization")
)
_ENDS = frozenset({b"host", b"content-length"})  # whatever Connection names: both ends need them

_TimeoutError = asyncio.TimeoutError  # another than the built-in one before Python 3.11
_BROKEN = (OSError, EOFError, h11.ProtocolError, _TimeoutError)


class Refused(Exception):
    """A request that is answered here: a status and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Servers:
    """Addresses of servers as a file names them, and the requests that each has."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: object = None
        self._named: list[str] = []
        self._next: list[str] = []  # that are to take requests once they answer
        self._health = "/"
        self.in_flight: dict[str, int] = {}

    def named(self) -> list[str]:
        """Return the servers that take requests now, those with the fewest first."""
        with contextlib.suppress(OSError, ValueError):
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                document = json.loads(self._path.read_text(encoding="utf-8"))
                self._named = [str(one) for one in document["servers"]]
                self._next = [str(one) for one in document.get("next", ())]
                self._health = str(document.get("health", "/"))
                self._seen = seen
        return sorted(self._named, key=lambda one: self.in_flight.get(one, 0))

    async def state(self) -> dict[str, object]:
        """Return which of the named servers answer, and the requests of each."""
        names = [*self.named(), *self._next]
        ready = await asyncio.gather(*(self._answers(one) for one in names))
        return {
            "servers": self._named,
            "ready": dict(zip(names, ready)),  # noqa: B905 (3.9)
            "in_flight": self.in_flight,
        }

    async def _answers(self, name: str) -> bool:
        """Return whether a server says that it can serve."""
        try:
            return await asyncio.wait_for(_status(name, self._health), _READY_S) == 200
        except (*_BROKEN, ValueError):
            return False

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Peer]:
        """Connect to a server and count it as a request; raise `Refused` where none answers."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _WAIT_S
        while True:
            for name in self.named():
                self.in_flight[name] = self.in_flight.get(name, 0) + 1
                try:
                    try:
                        opened = await asyncio.wait_for(_connect(name), _CONNECT_S)
                    except (OSError, ValueError, _TimeoutError):
                        continue
                    try:
                        yield opened
                    finally:
                        opened.writer.close()
                    return
                finally:
                    self.in_flight[name] -= 1
                    if not self.in_flight[name]:
                        del self.in_flight[name]
            if loop.time() > end:
                raise Refused(503, "no server answers")
            await asyncio.sleep(_RETRY_S)


class Peer:
    """One side of an exchange: its connection, and what HTTP has come and gone there."""

    def __init__(
        self, role: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.http = h11.Connection(role, max_incomplete_event_size=_HEAD)
        self.reader, self.writer = reader, writer
        self.now = asyncio.get_running_loop().time

    async def event(self) -> Any:
        """Return what comes next; raise `RemoteProtocolError` for no HTTP, or half a message."""
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self.http.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=100, headers=[]))
            self.http.receive_data(await self.reader.read(_PIECE))

    async def send(self, *events: Any) -> None:
        """Write, and wait while the peer takes nothing; raise `TimeoutError` if it stalls."""
        self.writer.write(b"".join([self.http.send(one) or b"" for one in events]))
        drained = self.writer.drain()
        if self.writer.transport.get_write_buffer_size() > _PIECE:
            await asyncio.wait_for(drained, _STALL_S)
        else:
            await drained


async def _connect(name: str) -> Peer:
    host, _, port = name.rpartition(":")
    return Peer(h11.CLIENT, *await asyncio.open_connection(host, int(port), limit=_PIECE))


async def _status(name: str, path: str) -> int:
    """Return the status of a server's answer to a GET."""
    server = await _connect(name)
    try:
        headers = [("Host", "front"), ("Connection", "close")]
        request = h11.Request(method="GET", target=path, headers=headers)
        await server.send(request, h11.EndOfMessage())
        return int((await _answer(server)).status_code)
    finally:
        server.writer.close()


async def _answer(server: Peer) -> Any:
    """Return the head of a server's answer, without those of status 1xx before it."""
    while isinstance(event := await server.event(), h11.InformationalResponse):
        pass
    if not isinstance(event, h11.Response):
        raise EOFError
    return event


def _check(request: Any) -> None:
    """Raise `Refused` for a request that is too large, or that two readers could read as two."""
    headers = dict(request.headers)
    if request.http_version not in (b"1.0", b"1.1"):
        raise Refused(505, "that is no HTTP/1.1")
    if request.method == b"CONNECT":
        raise Refused(501, "the front is no tunnel")
    if b"websocket" in headers.get(b"upgrade", b"").lower():
        raise Refused(501, "WebSockets are not passed on: ask a server itself")
    if b"transfer-encoding" in headers:
        if b"content-length" in headers or request.http_version != b"1.1":
            raise Refused(400, "the body has a length and chunks, or chunks in HTTP/1.0")
    elif int(headers.get(b"content-length", b"0")) > _BODY:
        raise Refused(413, f"a body of more than {_BODY} bytes")


def _passed_on(headers: Any) -> list[tuple[bytes, bytes]]:
    """Return the headers that are not of one connection alone."""
    named = b",".join(value for name, value in headers if name == b"connection").lower()
    dropped = _HOP | ({one.strip() for one in named.split(b",")} - _ENDS)
    if any(name == b"transfer-encoding" for name, _ in headers):
        dropped |= {b"content-length"}  # the chunks decide
    return [(name, value) for name, value in headers.raw_items() if name.lower() not in dropped]


def _forwarded(request: Any, size: int) -> Any:
    """Return a request as a server gets it, with a body of so many bytes."""
    kept = [one for one in _passed_on(request.headers) if one[0].lower() not in _ENDS]
    target, host = bytes(request.target), dict(request.headers).get(b"host", b"front")
    if target.lower().startswith((b"http://", b"https://")):  # RFC 9112, 3.2.2
        parts = urlsplit(target)
        target = (parts.path or b"/") + (b"?" + parts.query if parts.query else b"")
        host = parts.netloc.rpartition(b"@")[2]
    if size or request.method in (b"POST", b"PUT", b"PATCH"):
        kept.append((b"Content-Length", b"%d" % size))
    kept += [(b"Host", host), (b"Connection", b"close")]
    return h11.Request(method=request.method, target=target, headers=kept)


class Front:
    """Answers clients with what servers say."""

    def __init__(
        self, servers: Servers, connections: int = _CONNECTIONS, captures: HttpCapture | None = None
    ) -> None:
        self._servers = servers
        self._captures = captures
        self._gate = Gate(connections)
        self._held = 0  # bytes of bodies
        self.requests = 0
        self.is_ending = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until either side has enough."""
        client = Peer(h11.SERVER, reader, writer)
        try:
            if self._gate.admit(writer):
                wait_s = _HEAD_S
                while await self._one(client, wait_s):
                    client.http.start_next_cycle()
                    wait_s = _IDLE_S
            else:
                await self._refuse(client, 503, "there are too many connections")
        except _BROKEN:
            writer.transport.abort()  # nobody takes half an answer for a whole one
        finally:
            self._gate.release(writer)
            writer.close()

    async def _one(self, client: Peer, wait_s: float) -> bool:
        """Answer one request; return whether another may follow."""
        body = bytearray()
        try:
            with self._gate.waiting(client.writer):
                request = await self._head(client, wait_s)
            if not isinstance(request, h11.Request):
                return False
            self.requests += 1
            try:
                _check(request)
                await self._read_body(client, body)
                if request.target == STATE.encode():
                    await self._say(client, 200, await self._state())
                else:
                    await self._while_there(client, self._pass_on(client, request, body))
            finally:
                self._let_go(body)
                self.requests -= 1
        except Refused as error:
            return await self._refuse(client, error.status, str(error))
        except h11.RemoteProtocolError as error:
            return await self._refuse(client, error.error_status_hint, "that is no HTTP/1.1")
        return client.http.our_state is h11.DONE

    async def _state(self) -> dict[str, object]:
        captured = {"capture": self._captures.counts()} if self._captures else {}
        return {**await self._servers.state(), **captured}

    async def _head(self, client: Peer, wait_s: float) -> Any:
        """Return a request, or that the client has closed; raise `Refused` for a slow one."""
        if not client.http.trailing_data[0]:
            client.http.receive_data(await asyncio.wait_for(client.reader.read(_PIECE), wait_s))
        try:
            return await asyncio.wait_for(client.event(), _HEAD_S)
        except _TimeoutError:
            raise Refused(408, f"no whole head within {_HEAD_S:.0f} s") from None

    async def _read_body(self, client: Peer, body: bytearray) -> None:
        """Append the whole body of a request, before any server is asked."""
        began = client.now()
        while True:
            left = began + _BODY_S + len(body) / _LEAST_RATE - client.now()
            try:
                event = await asyncio.wait_for(client.event(), max(left, 0.0))
            except _TimeoutError:
                raise Refused(408, "the body comes too slowly") from None
            if isinstance(event, h11.EndOfMessage):
                return
            if not isinstance(event, h11.Data):
                raise EOFError
            body += event.data
            self._held += len(event.data)
            if len(body) > _BODY:
                raise Refused(413, f"a body of more than {_BODY} bytes")
            if self._held > _BODIES:
                raise Refused(503, "there are too many bodies")

    def _let_go(self, body: bytearray) -> None:
        self._held -= len(body)
        body.clear()

    async def _while_there(self, client: Peer, doing: Coroutine[Any, Any, None]) -> None:
        """Do something for a client; raise `EOFError` as soon as it has closed."""
        task: asyncio.Future[Any] = asyncio.ensure_future(doing)
        watch: asyncio.Future[Any] | None = None
        early = 0  # bytes of its next requests
        try:
            while not task.done():
                if watch is None and early < _HEAD:
                    watch = asyncio.ensure_future(client.reader.read(_HEAD))
                both: set[asyncio.Future[Any]] = {task, watch} if watch else {task}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if watch is not None and watch.done():
                    data, watch = watch.result(), None
                    if not data and not task.done():
                        raise EOFError
                    client.http.receive_data(data)
                    early += len(data)
            task.result()
        finally:
            for one in filter(None, (task, watch)):
                one.cancel()
                with contextlib.suppress(Exception, asyncio.CancelledError):
                    await one

    async def _pass_on(self, client: Peer, request: Any, body: bytearray) -> None:
        """Send a request to a server and its answer to the client."""
        kept = None
        if self._captures is not None:
            method, path = bytes(request.method), bytes(request.target)
            kept = self._captures.begin(method, path, dict(request.headers), body)
        try:
            await self._pass_answer(client, request, body, kept)
        finally:
            if kept is not None:
                kept.close()

    async def _pass_answer(
        self, client: Peer, request: Any, body: bytearray, kept: KeptAnswer | None
    ) -> None:
        async with self._servers.connected() as server:
            try:
                with contextlib.suppress(ConnectionError):  # it may have answered before
                    await server.send(_forwarded(request, len(body)))
                    for at in range(0, len(body), _PIECE):
                        await server.send(h11.Data(data=bytes(body[at : at + _PIECE])))
                    await server.send(h11.EndOfMessage())
                self._let_go(body)
                answer = await _answer(server)
            except _BROKEN:
                raise Refused(502, "the server broke off before it answered") from None
            headers = [*_passed_on(answer.headers), *self._last()]
            status, reason = answer.status_code, answer.reason
            if kept is not None:
                kept.head(status, dict(answer.headers))
            await client.send(h11.Response(status_code=status, headers=headers, reason=reason))
            while not isinstance(event := await server.event(), h11.EndOfMessage):
                if not isinstance(event, h11.Data):
                    raise EOFError
                if kept is not None:
                    kept.take(bytes(event.data))
                await client.send(event)
            if kept is not None:
                kept.is_whole = True
            await client.send(h11.EndOfMessage())

    def _last(self, closing: bool = False) -> list[tuple[bytes, bytes]]:
        return [(b"Connection", b"close")] if closing or self.is_ending else []

    async def _say(self, client: Peer, status: int, said: object, closing: bool = False) -> None:
        body, reason = json.dumps(said).encode(), HTTPStatus(status).phrase
        kind, size = (b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))
        headers = [kind, size, *self._last(closing)]
        await client.send(h11.Response(status_code=status, headers=headers, reason=reason))
        await client.send(h11.Data(data=body), h11.EndOfMessage())

    async def _refuse(self, client: Peer, status: int, why: str) -> bool:
        """Answer a request and close: what else the client sends is not read as another one."""
        if client.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            raise EOFError  # an answer has begun
        await self._say(client, status, {"error": why}, closing=True)
        client.writer.write_eof()
        end = client.now() + _LINGER_S
        with contextlib.suppress(_TimeoutError):
            while await asyncio.wait_for(client.reader.read(_PIECE), end - client.now()):
                pass
        return False


def _connections() -> int:
    """Return how many clients there may be: each has two files, and Docker may allow 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * _CONNECTIONS + 64
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return (most - 64) // 2


async def run(path: str, port: int, grace_s: float) -> None:
    """Serve until SIGTERM; then end what runs, within the grace."""
    captures = capture_of(os.environ.get(VARIABLE, ""))
    front = Front(Servers(path), _connections(), captures)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, ended.set)
    server = await asyncio.start_server(front.serve, "0.0.0.0", port, limit=_HEAD, backlog=1024)
    await ended.wait()
    front.is_ending = True
    server.close()
    end = loop.time() + grace_s
    while front.requests and loop.time() < end:
        await asyncio.sleep(_RETRY_S)
    if captures is not None:
        captures.close()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
