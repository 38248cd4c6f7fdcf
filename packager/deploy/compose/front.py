"""An HTTP front: one port, and servers behind it that may change while requests run.

It is copied beside the compose file and runs in a container of the served image, with Python
alone: it imports nothing of ours.  Which servers there are is in a file, which is read again when
it was replaced; a server that is no longer named gets no new request and ends those that it has.
Each request has a connection of its own to a server, so a server that stops loses none.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

STATE = "/.packager/front"  # which servers answer, and how many requests each has
_HEAD = 64 * 1024
_PIECE = 64 * 1024
_CONNECT_S = 5.0
_WAIT_S = 60.0  # for a server, while none takes connections
_RETRY_S = 0.1
_READY_S = 5.0
_LOOK_S = 1.0  # whether the client of a request is still there
_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade", b"expect"}
)
_CONTROLS = frozenset(b"\r\n\0")
_HEX = frozenset(b"0123456789abcdefABCDEF")


class Bad(Exception):
    """What came is no HTTP that can be passed on."""


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
        host, _, port = name.rpartition(":")
        try:
            return await asyncio.wait_for(_status(host, int(port), self._health), _READY_S) == 200
        except (OSError, EOFError, ValueError, IndexError, asyncio.TimeoutError):  # noqa: UP041
            return False

    @contextlib.asynccontextmanager
    async def connected(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        """Connect to a server and count it as a request; give None where no server answers."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _WAIT_S
        while True:
            for name in self.named():
                self.in_flight[name] = self.in_flight.get(name, 0) + 1
                try:
                    host, _, port = name.rpartition(":")
                    try:
                        opened = await asyncio.wait_for(
                            asyncio.open_connection(host, int(port), limit=_HEAD), _CONNECT_S
                        )
                    except (OSError, ValueError, asyncio.TimeoutError):  # noqa: UP041 (3.9, 3.10)
                        continue
                    try:
                        yield opened
                    finally:
                        opened[1].close()
                    return
                finally:
                    self.in_flight[name] -= 1
                    if not self.in_flight[name]:
                        del self.in_flight[name]
            if loop.time() > end:
                yield None
                return
            await asyncio.sleep(_RETRY_S)


async def _status(host: str, port: int, path: str) -> int:
    """Return the status of a server's answer to a GET."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: front\r\nConnection: close\r\n\r\n".encode())
        return int((await reader.readuntil(b"\r\n")).split(b" ")[1])
    finally:
        writer.close()


def parse_head(head: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the first line and the headers; raise `Bad` for what is neither."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    # Some servers end a line at a lone line feed: they would see other headers than are seen here.
    if any({*line} & _CONTROLS for line in (first, *lines)):
        raise Bad
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name.strip() != name:
            raise Bad
        headers.append((name, value.strip()))
    return first, headers


def length_of(headers: list[tuple[bytes, bytes]]) -> int | None:
    """Return the bytes of a body, -1 for one in chunks, None where nothing says it.

    Raise `Bad` where two readers could see two ends.
    """
    lengths = {value for name, value in headers if name.lower() == b"content-length"}
    coded = [value.lower() for name, value in headers if name.lower() == b"transfer-encoding"]
    if coded:
        if lengths or coded != [b"chunked"]:
            raise Bad
        return -1
    if not lengths:
        return None
    if len(lengths) > 1 or not (only := lengths.pop()).isdigit():
        raise Bad
    return int(only)


async def copy_body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int
) -> None:
    """Pass on a body of so many bytes, or one in chunks."""
    if length < 0:
        while True:
            line = await reader.readuntil(b"\r\n")
            writer.write(line)
            digits = line.removesuffix(b"\r\n").split(b";")[0].rstrip(b" \t")
            if not digits or len(digits) > 16 or not {*digits} <= _HEX:  # int() reads 0x1_0, too
                raise Bad
            size = int(digits, 16)
            if size:
                await _copy(reader, writer, size + 2)
                continue
            while line not in (b"\r\n", b""):  # trailers
                line = await reader.readuntil(b"\r\n")
                writer.write(line)
                await writer.drain()
            return
    await _copy(reader, writer, length)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    while size:
        piece = await reader.read(min(size, _PIECE))
        if not piece:
            raise Bad
        writer.write(piece)
        await writer.drain()
        size -= len(piece)


class Front:
    """Answers clients with what servers say."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until either side has enough."""
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, EOFError, ValueError, Bad, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether another may follow."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        try:
            try:
                first, headers = parse_head(head)
                method, path, version = first.split(b" ")
                length = length_of(headers)
            except (Bad, ValueError):
                _say(writer, 400, {"error": "no HTTP that can be passed on"})
                return False
            given = {name.lower(): value.lower() for name, value in headers}
            again = version == b"HTTP/1.1" and b"close" not in given.get(b"connection", b"")
            if path == STATE.encode():
                _say(writer, 200, await self._servers.state(), again=again)
                return again and not length
            if b"100-continue" in given.get(b"expect", b""):
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            async with self._servers.connected() as opened:
                if opened is None:
                    _say(writer, 503, {"error": "no server answers"})
                    return False
                lines = [method + b" " + path + b" HTTP/1.1"]
                lines += [b"%s: %s" % one for one in headers if one[0].lower() not in _HOP]
                opened[1].write(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n")
                return await self._pass_on(reader, writer, opened, method, length or 0, again)
        finally:
            self.requests -= 1

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        opened: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        method: bytes,
        length: int,
        again: bool,
    ) -> bool:
        """Send a request's body to the server and its answer to the client."""
        sending = asyncio.ensure_future(copy_body(reader, opened[1], length))
        try:
            try:
                first, headers = await self._answer(reader, opened[0], sending)
            except (OSError, EOFError, ValueError, Bad, asyncio.LimitOverrunError):
                if _is_malformed(sending):
                    _say(writer, 400, {"error": "the body is none that can be passed on"})
                elif not reader.at_eof():
                    _say(writer, 502, {"error": "the server broke off before it answered"})
                return False
            code = int(first.split(b" ")[1])
            size = 0 if method == b"HEAD" or code in (204, 304) else length_of(headers)
            again = again and size is not None
            lines = [b"HTTP/1.1 " + first.partition(b" ")[2]]
            lines += [b"%s: %s" % one for one in headers if one[0].lower() not in _HOP]
            lines.append(b"Connection: " + (b"keep-alive" if again else b"close"))
            writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
            if size is None:
                while piece := await opened[0].read(_PIECE):
                    writer.write(piece)
                    await writer.drain()
            else:
                await copy_body(opened[0], writer, size)
            await writer.drain()
            return again and sending.done() and sending.exception() is None
        finally:
            sending.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await sending

    async def _answer(
        self,
        client: asyncio.StreamReader,
        server: asyncio.StreamReader,
        sending: asyncio.Future[None],
    ) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """Return the head of the server's answer, unless the client goes away before."""
        while True:
            task = asyncio.ensure_future(server.readuntil(b"\r\n\r\n"))
            try:
                while not task.done():
                    await asyncio.wait({task}, timeout=_LOOK_S)
                    # The server waits for the rest of a body that will never come.
                    if sending.done() and (client.at_eof() or _is_malformed(sending)):
                        raise EOFError
                first, headers = parse_head(await task)
            finally:
                task.cancel()
            if not first.split(b" ")[1].startswith(b"1"):  # 100 was said to the client already
                return first, headers


def _is_malformed(sending: asyncio.Future[None]) -> bool:
    """Return whether a request's body ended as no body can."""
    malformed = (Bad, ValueError, asyncio.LimitOverrunError)
    return sending.done() and isinstance(sending.exception(), malformed)


def _say(
    writer: asyncio.StreamWriter, status: int, document: object, *, again: bool = False
) -> None:
    body = json.dumps(document).encode()
    words = {200: "OK", 400: "Bad Request", 502: "Bad Gateway", 503: "Service Unavailable"}
    head = f"HTTP/1.1 {status} {words[status]}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n"
    head += f"Connection: {'keep-alive' if again else 'close'}\r\n\r\n"
    writer.write(head.encode() + body)


async def run(path: str, port: int, grace_s: float) -> None:
    """Serve until SIGTERM; then end what runs, within the grace."""
    front = Front(Servers(path))
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, ended.set)
    server = await asyncio.start_server(front.serve, "0.0.0.0", port, limit=_HEAD)
    await ended.wait()
    server.close()
    end = loop.time() + grace_s
    while front.requests and loop.time() < end:
        await asyncio.sleep(_RETRY_S)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
