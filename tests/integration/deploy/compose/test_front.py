"""The front of a project: HTTP passed on over real sockets, while servers come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from packager.deploy.compose import front
from tests.support.cases import cases_of

cases = cases_of(__file__)

pytestmark = pytest.mark.usefixtures("runner")

Answer = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


async def told(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with what was asked."""
    length = front.length_of(front.parse_head(head)[1]) or 0
    body = await reader.readexactly(length) if length > 0 else b""
    said = json.dumps([head.decode(), body.decode()]).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said) + said)


def saying(data: bytes) -> Answer:
    async def answer(_: bytes, __: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return answer


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[str]:
    """Give HOST:PORT of a server that answers one request a connection."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(await reader.readuntil(b"\r\n\r\n"), reader, writer)
        finally:
            writer.close()

    made = await asyncio.start_server(one, "127.0.0.1", 0)
    async with made:
        yield f"127.0.0.1:{made.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def fronted(
    place: Path, *names: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Give a connection to a front before these servers."""
    use(place, *names)
    made = await asyncio.start_server(front.Front(front.Servers(str(place))).serve, "127.0.0.1", 0)
    async with made:
        reader, writer = await asyncio.open_connection(*made.sockets[0].getsockname()[:2])
        try:
            yield reader, writer
        finally:
            writer.close()


@asynccontextmanager
async def asked(
    folder: Path, answer: Answer
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Give a connection to a front before one server."""
    async with server(answer) as name, fronted(folder / "servers.json", name) as connection:
        yield connection


def use(place: Path, *names: str, coming: tuple[str, ...] = ()) -> None:
    new = place.with_suffix(".new")
    new.write_text(json.dumps({"servers": names, "next": coming, "health": "/ping"}))
    new.replace(place)


async def heard(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the head and the body of an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = front.length_of(front.parse_head(head)[1])
    return head, await (reader.readexactly(length) if length is not None else reader.read())


GET = b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n"


async def test_each_request_goes_to_the_server_that_is_named_then(tmp_path: Path) -> None:
    place = tmp_path / "servers.json"
    async with (
        server(saying(OK + b"a!")) as first,
        server(saying(OK + b"b!")) as second,
        fronted(place, first) as (reader, writer),
    ):
        for name, body in ((first, b"a!"), (second, b"b!"), (first, b"a!")):
            use(place, name)
            writer.write(GET)
            head, said = await heard(reader)
            assert said == body
            assert b"Connection: keep-alive" in head


async def test_bodies_and_headers_arrive_as_they_were_sent(tmp_path: Path) -> None:
    async with asked(tmp_path, told) as (reader, writer):
        head = b"POST /v1/x?a=b HTTP/1.1\r\nHost: a\r\nX-Own: 1\r\nConnection: x\r\n"
        writer.write(head + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hello")
        _, said = await heard(reader)
        request, body = json.loads(said)
        assert body == "hello"
        assert request == (
            "POST /v1/x?a=b HTTP/1.1\r\nHost: a\r\nX-Own: 1\r\nContent-Length: 5\r\n"
            "Connection: close\r\n\r\n"
        )


async def test_a_stream_arrives_piece_by_piece(tmp_path: Path) -> None:
    more = asyncio.Event()

    async def stream(_: bytes, __: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await writer.drain()
        await more.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async with asked(tmp_path, stream) as (reader, writer):
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(8) == b"3\r\none\r\n"
        more.set()
        assert await reader.readexactly(13) == b"3\r\ntwo\r\n0\r\n\r\n"


async def test_an_answer_without_a_length_ends_with_its_connection(tmp_path: Path) -> None:
    async with asked(tmp_path, saying(b"HTTP/1.0 200 OK\r\n\r\nwhole")) as (reader, writer):
        writer.write(GET)
        head, said = await heard(reader)
        assert b"Connection: close" in head
        assert said == b"whole"


async def test_a_server_that_takes_no_connection_is_passed_over(tmp_path: Path) -> None:
    async with server(saying(OK + b"a!")) as gone:
        pass
    async with (
        server(saying(OK + b"b!")) as name,
        fronted(tmp_path / "servers.json", gone, name) as (reader, writer),
    ):
        writer.write(GET)
        assert (await heard(reader))[1] == b"b!"


async def test_a_request_waits_for_a_server(tmp_path: Path) -> None:
    place = tmp_path / "servers.json"
    async with server(saying(OK + b"b!")) as name, fronted(place) as (reader, writer):
        writer.write(GET)
        await writer.drain()
        use(place, name)
        assert (await heard(reader))[1] == b"b!"


@cases("refused")
async def test_an_ambiguous_request_is_refused(tmp_path: Path, sent: str, status: str) -> None:
    async with asked(tmp_path, saying(b"")) as (reader, writer):
        writer.write(sent.encode())
        head, _ = await heard(reader)
        assert head.split()[1].decode() == status
        assert await reader.read() == b""


async def test_the_front_says_who_answers_and_who_is_busy(tmp_path: Path) -> None:
    place = tmp_path / "servers.json"
    busy, asked = asyncio.Event(), asyncio.Event()

    async def slow(head: bytes, _: Any, writer: asyncio.StreamWriter) -> None:
        if head.startswith(b"POST"):
            asked.set()
            await busy.wait()
        writer.write(OK + b"a!")

    async with (
        server(slow) as old,
        server(saying(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")) as new,
        fronted(place, old) as (_, writer),
    ):
        host, port = writer.get_extra_info("peername")[:2]
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        await asked.wait()
        use(place, old, coming=(new,))
        reader, second = await asyncio.open_connection(host, port)
        second.write(b"GET " + front.STATE.encode() + b" HTTP/1.1\r\n\r\n")
        _, said = await heard(reader)
        second.close()
        assert json.loads(said) == {
            "servers": [old],
            "ready": {old: True, new: False},
            "in_flight": {old: 1},
        }
        busy.set()
