"""What the front refuses to pass on, without sockets: two readers could see two requests in it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from packager.deploy.compose import front
from tests.support.cases import cases_of

cases = cases_of(__file__)


class Loop(asyncio.BaseEventLoop):
    """Runs coroutines that wait for no socket: it has none, and its clock goes on by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        self._now += timeout or 0.0
        return []

    def _process_events(self, _: list[Any]) -> None:
        pass


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    loop = Loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


class Sink:
    """Takes what is written, and counts how often its writer waited for it."""

    def __init__(self) -> None:
        self.data, self.waited = b"", 0

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        self.waited += 1


def copied(body: bytes) -> Sink:
    async def copy() -> Sink:
        reader, sink = asyncio.StreamReader(), Sink()
        reader.feed_data(body)
        reader.feed_eof()
        await front.copy_body(reader, sink, -1)  # type: ignore[arg-type]
        return sink

    found: Sink = run(copy())
    return found


@cases("lines_end_in_one_way")
def test_lines_end_in_one_way(head: bytes) -> None:
    with pytest.raises(front.Bad):
        front.parse_head(head)


@pytest.mark.parametrize("size", [b"0x1", b"0_1", b"+1", b"-0", b"", b" 1", b"1" * 17, b"1\n"])
def test_sizes_of_chunks_are_hexadecimal_digits(size: bytes) -> None:
    with pytest.raises(front.Bad):
        copied(size + b"\r\nx\r\n0\r\n\r\n")


def test_chunks_with_extensions_and_trailers_are_passed_on_as_fast_as_they_are_taken() -> None:
    body = b"3 ;a=b\r\none\r\nA\r\n0123456789\r\n0\r\n" + b"T: v\r\n" * 20 + b"\r\n"
    sink = copied(body)

    assert sink.data == body
    assert sink.waited > 20


@pytest.mark.parametrize("error", [front.Bad(), ValueError(), asyncio.LimitOverrunError("", 0)])
def test_a_body_that_ends_as_none_can_is_not_waited_for(error: Exception) -> None:
    async def answered() -> None:
        client, server = asyncio.StreamReader(), asyncio.StreamReader()
        sending = asyncio.get_running_loop().create_future()
        sending.set_exception(error)
        made = front.Front(front.Servers("none"))
        await asyncio.wait_for(made._answer(client, server, sending), 60)

    with pytest.raises(EOFError):
        run(answered())
