"""The front of a project: HTTP passed on over real sockets, while servers come and go."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from packager.addons.deploy.compose import front
from packager.addons.deploy.compose.documents import files_beside
from packager.core.capture.http import capture_of
from packager.core.capture.settings import VARIABLE, CaptureSettings
from tests.support.cases import cases_of
from tests.support.free_ports import free_port
from tests.support.known import known

cases = cases_of(__file__)

pytestmark = pytest.mark.usefixtures("runner")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Answer = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
GET = b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"


def length_of(head: bytes) -> int | None:
    found = re.search(rb"(?i)content-length: (\d+)", head)
    return int(found[1]) if found else None


async def told(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with what was asked."""
    body = await reader.readexactly(length_of(head) or 0)
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
        with suppress(EOFError), closing(writer):
            await answer(await reader.readuntil(b"\r\n\r\n"), reader, writer)

    made = await asyncio.start_server(one, "127.0.0.1", 0)
    async with made:
        yield f"127.0.0.1:{made.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def fronted(place: Path, *names: str, connections: int = 100) -> AsyncIterator[Streams]:
    """Give a connection to a front before these servers."""
    use(place, *names)
    made = front.Front(front.Servers(str(place)), connections)
    serving = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=32768, backlog=1024)
    async with serving:
        reader, writer = await asyncio.open_connection(*serving.sockets[0].getsockname()[:2])
        try:
            yield reader, writer
        finally:
            writer.close()


@asynccontextmanager
async def asked(folder: Path, answer: Answer, **more: int) -> AsyncIterator[Streams]:
    """Give a connection to a front before one server."""
    async with server(answer) as name, fronted(folder / "servers.json", name, **more) as connection:
        yield connection


async def another(writer: asyncio.StreamWriter, data: bytes) -> Streams:
    """Open another connection to the same front, and send something there."""
    reader, second = await asyncio.open_connection(*writer.get_extra_info("peername")[:2])
    second.write(data)
    await second.drain()
    return reader, second


def use(place: Path, *names: str, coming: tuple[str, ...] = ()) -> None:
    new = place.with_suffix(".new")
    new.write_text(json.dumps({"servers": names, "next": coming, "health": "/ping"}))
    new.replace(place)


async def heard(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the head and the body of an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = length_of(head)
    return head, await (reader.readexactly(length) if length is not None else reader.read())


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
            assert (await heard(reader))[1] == body


async def test_what_is_of_one_connection_alone_is_not_passed_on(tmp_path: Path) -> None:
    """RFC 9110, 7.6.1: also what Connection names, unless both ends need it."""
    async with asked(tmp_path, told) as (reader, writer):
        head = b"POST http://b/v1/x?a=b HTTP/1.1\r\nHost: a\r\nX-Own: 1\r\nX-Hop: 1\r\n"
        head += (
            b"Connection: x-hop, host, content-length, Upgrade\r\nUpgrade: h2c\r\nTE: trailers\r\n"
        )
        writer.write(head + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nT: v\r\n\r\n" + GET)
        request, body = json.loads((await heard(reader))[1])
        assert body == "hello"
        assert sorted(request.splitlines()) == [
            "",
            "Connection: close",
            "Content-Length: 5",
            "Host: b",
            "POST /v1/x?a=b HTTP/1.1",
            "X-Own: 1",
        ]
        assert json.loads((await heard(reader))[1])[0].startswith("GET /ping ")  # sent before

    hops = (
        b"HTTP/1.1 200 OK\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-Own: 1\r\n"
    )
    async with asked(tmp_path, saying(hops + b"Content-Length: 2\r\n\r\nok")) as (reader, writer):
        writer.write(GET)
        head, _ = await heard(reader)
        assert head == b"HTTP/1.1 200 OK\r\nX-Own: 1\r\nContent-Length: 2\r\n\r\n"


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


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_an_answer_without_a_length_is_whole(tmp_path: Path, version: bytes) -> None:
    async with asked(tmp_path, saying(b"HTTP/1.0 200 OK\r\n\r\nwhole")) as (reader, writer):
        writer.write(GET.replace(b"1.1", version))
        await reader.readuntil(b"\r\n\r\n")
        expected = b"whole" if version == b"1.0" else b"5\r\nwhole\r\n0\r\n\r\n"
        assert await reader.readexactly(len(expected)) == expected


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
async def test_what_cannot_be_passed_on_is_refused(tmp_path: Path, sent: str, status: str) -> None:
    async with asked(tmp_path, saying(b"")) as (reader, writer):
        writer.write(sent.replace("{host}", "Host: a\r\n").encode())
        head, _ = await heard(reader)
        assert head.split()[1].decode() == status
        assert await reader.read() == b""  # what follows is not read as a request


@cases("answers_that_break")
async def test_half_an_answer_is_not_taken_for_a_whole_one(tmp_path: Path, answer: str) -> None:
    async with asked(tmp_path, saying(answer.encode())) as (reader, writer):
        writer.write(GET)
        said = await reader.read()
        assert b"half" in said
        assert not said.endswith(b"0\r\n\r\n")


async def test_a_server_is_asked_when_the_whole_body_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_BODY_S", 0.5)
    heads: list[bytes] = []

    async def noted(head: bytes, _: Any, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.write(OK + b"a!")

    async with asked(tmp_path, noted) as (reader, writer):
        writer.write(POST + b"hel")
        slow, second = await another(writer, POST + b"hell")
        await asyncio.sleep(0.1)
        assert heads == []
        writer.write(b"lo")
        assert (await heard(reader))[1] == b"a!"
        assert (await heard(slow))[0].startswith(b"HTTP/1.1 408 ")
        assert len(heads) == 1
        second.close()


async def test_3000_half_heads_keep_nobody_out_and_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_HEAD_S", 3.0)
    async with asked(tmp_path, saying(OK + b"a!"), connections=2000) as (reader, writer):
        half = [await another(writer, b"GET / HTTP/1.1\r\nA: ") for _ in range(3000)]
        writer.write(GET)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await heard(reader)  # it had waited longest
        reader, second = await another(writer, GET)
        assert (await heard(reader))[1] == b"a!"
        second.close()
        for told, _ in half:
            async with asyncio.timeout(10):
                assert (await told.read(12)) in (b"", b"HTTP/1.1 408")
        for _, one in half:
            one.close()


async def test_connections_that_are_busy_make_no_room(tmp_path: Path) -> None:
    busy = asyncio.Event()

    async def slow(_: bytes, __: Any, writer: asyncio.StreamWriter) -> None:
        await busy.wait()
        writer.write(OK + b"a!")

    async with asked(tmp_path, slow, connections=4) as (reader, writer):
        writer.write(GET)
        other, second = await another(writer, GET)
        await asyncio.sleep(0.1)
        third, last = await another(writer, GET)
        assert (await heard(third))[0].startswith(b"HTTP/1.1 503 ")
        busy.set()
        assert [(await heard(one))[1] for one in (reader, other)] == [b"a!", b"a!"]
        second.close()
        last.close()


async def test_a_server_is_let_go_when_the_client_leaves(tmp_path: Path) -> None:
    asked_for, ended = asyncio.Event(), asyncio.Event()

    async def thinking(_: bytes, reader: asyncio.StreamReader, __: Any) -> None:
        asked_for.set()
        await reader.read()
        ended.set()

    async with asked(tmp_path, thinking) as (_, writer), asyncio.timeout(20):
        writer.write(GET)
        await asked_for.wait()
        writer.close()
        await ended.wait()


async def test_a_server_waits_for_a_client_that_reads_slowly_and_leaves_one_that_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_STALL_S", 0.5)
    sent, ended = [0], asyncio.Event()

    async def endless(_: bytes, __: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(bytes(65536))
                await writer.drain()
                sent[0] += 65536
        ended.set()

    async with asked(tmp_path, endless) as (reader, writer), asyncio.timeout(20):
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        await ended.wait()
        assert sent[0] < 64 << 20


async def test_a_connection_without_a_request_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_IDLE_S", 0.2)
    async with asked(tmp_path, saying(OK + b"a!")) as (reader, writer):
        writer.write(GET)
        assert (await heard(reader))[1] == b"a!"
        async with asyncio.timeout(5):
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
        writer.write(POST + b"hello")
        await asked.wait()
        use(place, old, coming=(new,))
        state = b"GET " + front.STATE.encode() + b" HTTP/1.1\r\nHost: a\r\n\r\n"
        reader, second = await another(writer, state)
        _, said = await heard(reader)
        second.close()
        assert json.loads(said) == {
            "servers": [old],
            "ready": {old: True, new: False},
            "in_flight": {old: 1},
        }
        busy.set()


async def test_the_program_runs_with_python_alone(tmp_path: Path) -> None:
    """As in a container: no packages of the image, and nothing of ours beside what is written."""
    for file in files_beside("a"):
        (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file.path).write_text(file.text)
    assert (tmp_path / "front/h11/LICENSE.txt").is_file()
    place = tmp_path / "front/servers.json"
    async with server(saying(OK + b"a!")) as name:
        use(place, name)
        port = free_port()
        words = [sys.executable, "-I", "-S", tmp_path / "front/front.py", place, str(port), "5"]
        captures = CaptureSettings(directory=str(tmp_path / "rows"), share=1.0)
        with subprocess.Popen(words, env={VARIABLE: captures.text()}) as running:
            try:
                async with asyncio.timeout(20):
                    while True:
                        with suppress(ConnectionRefusedError):
                            reader, writer = await asyncio.open_connection("127.0.0.1", port)
                            break
                        await asyncio.sleep(0.05)
                writer.write(chat_request())
                assert (await heard(reader))[1] == b"a!"
                writer.close()
            finally:
                running.terminate()
        assert running.returncode == 0
    assert len(list((tmp_path / "rows").rglob("*.jsonl"))) == 1


CHAT = b'{"messages": [{"role": "user", "content": "I am jo@example.org"}]}'
EVENT = 'data: {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": %s}]}\n\n'
STREAM = (EVENT % "null" + EVENT % '"stop"').encode() + b"data: [DONE]\n\n"
STREAMED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def chat_request(*headers: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    lines = (b"POST " + path + b" HTTP/1.1", b"Host: a", b"Content-Type: application/json")
    more = (b"Authorization: Bearer sEcReT-of-a-client", b"Content-Length: %d" % len(CHAT))
    return b"\r\n".join((*lines, *more, *headers)) + b"\r\n\r\n" + CHAT


async def captured_rows(
    folder: Path, requests: tuple[bytes, ...], answer: Answer
) -> tuple[list[Any], dict[str, int]]:
    """Return the rows, and the counts, that requests to a front with a capture leave."""
    captures = known(capture_of(CaptureSettings(directory=str(folder / "rows"), share=1.0).text()))
    place = folder / "servers.json"
    async with server(answer) as name:
        use(place, name)
        made = front.Front(front.Servers(str(place)), 10, captures)
        serving = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=32768)
        async with serving:
            for request in requests:
                at = serving.sockets[0].getsockname()[:2]
                reader, writer = await asyncio.open_connection(*at)
                with closing(writer):
                    writer.write(request.replace(b"Host: a", b"Host: a\r\nConnection: close", 1))
                    with suppress(EOFError, ConnectionError):
                        await asyncio.wait_for(reader.read(), 20)
    captures.close()
    files = (folder / "rows").rglob("*.jsonl")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert "sEcReT" not in json.dumps(rows)
    return rows, captures.counts()


async def test_an_answered_request_becomes_one_row_without_its_headers(tmp_path: Path) -> None:
    rows, counts = await captured_rows(tmp_path, (chat_request(),), saying(STREAMED + STREAM))

    (row,) = (one["captureData"] for one in rows)
    assert json.loads(row["endpointInput"]["data"])["messages"][0]["content"] == "I am [EMAIL]"
    (choice,) = json.loads(row["endpointOutput"]["data"])["choices"]
    assert choice["message"]["content"] == "hihi"
    assert counts["rows"] == 1


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (chat_request(), b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\n{}"),
        (chat_request(), b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}"),
        (
            chat_request(),
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        ),
        (chat_request(b"X-Packager-Capture: off"), STREAMED + STREAM),
        (chat_request(path=b"/v1/embeddings"), STREAMED + STREAM),
        (chat_request(), b""),
    ],
    ids=["refused", "failed", "compressed", "opted out", "no text", "no answer"],
)
async def test_what_is_no_answered_text_is_no_row(
    tmp_path: Path, request_: bytes, answer: bytes
) -> None:
    rows, counts = await captured_rows(tmp_path, (request_,), saying(answer))
    assert (rows, counts) == ([], {})


async def test_a_cut_answer_is_marked_as_such(tmp_path: Path) -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + STREAM[:40]
    rows, _ = await captured_rows(tmp_path, (chat_request(),), saying(cut))
    assert [one["eventMetadata"]["answerBrokeOff"] for one in rows] == [True]


async def test_a_capture_that_cannot_be_written_loses_no_request(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("no folder")
    settings = CaptureSettings(directory=str(tmp_path / "rows"), share=1.0)
    captures = known(capture_of(settings.text()))
    place = tmp_path / "servers.json"
    async with server(saying(OK + b"a!")) as name:
        use(place, name)
        made = front.Front(front.Servers(str(place)), 10, captures)
        serving = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=32768)
        async with serving:
            reader, writer = await asyncio.open_connection(*serving.sockets[0].getsockname()[:2])
            with closing(writer):
                for _ in range(50):
                    writer.write(chat_request())
                    assert (await heard(reader))[1] == b"a!"
    captures.close()
    assert captures.counts() == {"dropped-not-written": 50}
