"""The proxy that the other tests break lines with does what it says."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from tests.support.doubles.fault_proxy import Fault, FaultProxy
from tests.support.doubles.http import Handler, Server

BODY = bytes(range(256)) * 1000


class _Echo(Handler):
    """Answers with the body that came, and keeps it."""

    server: Server

    def do_PUT(self) -> None:
        self.server.double.append(self.body())
        self.say(200, {}, self.server.double[-1])


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(_Echo, [])
    server.open()
    yield server
    server.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.host) as proxy:
        yield proxy


def put(
    proxy: FaultProxy, headers: Mapping[str, str] | None = None, *, timeout_s: float = 60
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(proxy.host, timeout=timeout_s)
    connection.request("PUT", "/thing?x=1", body=BODY, headers=headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_without_faults_everything_passes(proxy: FaultProxy) -> None:
    connection = http.client.HTTPConnection(proxy.host, timeout=60)
    for _ in range(3):
        connection.request("PUT", "/thing", body=BODY)
        assert connection.getresponse().read() == BODY

    assert [(seen.sent, seen.status) for seen in proxy.exchanges] == [(len(BODY), 200)] * 3


def test_only_what_matches_is_broken_and_only_so_often(proxy: FaultProxy) -> None:
    fault = Fault("answer", "PUT", r"x=\d", skip=1, times=2, status=429)
    proxy.add(Fault("reset", "PATCH"), Fault("reset", path="/other"), fault)

    assert [put(proxy)[0] for _ in range(4)] == [200, 429, 429, 200]
    assert fault.hits == 2


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ({"do": "reset", "at": 0}, OSError),
        ({"do": "reset", "at": 1000}, OSError),
        ({"do": "reset", "at": -1}, OSError),
        ({"do": "truncate", "at": 1000}, http.client.IncompleteRead),
        ({"do": "delay", "at": 5, "seconds": 60}, TimeoutError),
        ({"do": "stall", "at": 5, "seconds": 60}, TimeoutError),
        ({"do": "dribble", "at": 5, "seconds": 60}, TimeoutError),
        ({"do": "half-close"}, http.client.RemoteDisconnected),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_line_breaks_once(
    proxy: FaultProxy, what: dict[str, Any], error: type[Exception]
) -> None:
    proxy.add(Fault(**what))

    with pytest.raises(error):
        put(proxy, timeout_s=1)

    if what["do"] == "reset":
        assert proxy.exchanges[0].sent == (what["at"] if what["at"] >= 0 else len(BODY) - 1)
    assert put(proxy) == (200, BODY)


@pytest.mark.parametrize("headers", [{}, {"Expect": "100-continue"}])
def test_a_dropped_answer_is_the_final_one(
    proxy: FaultProxy, server: Server, headers: dict[str, str]
) -> None:
    proxy.add(Fault("drop"))

    with pytest.raises(OSError):
        put(proxy, headers)
    assert server.double == [BODY]  # the server has done it


@pytest.mark.parametrize(("at", "place"), [(0, 0), (70_000, 70_000), (-1, len(BODY) - 1)])
def test_a_flipped_byte_is_the_only_wrong_one(proxy: FaultProxy, at: int, place: int) -> None:
    proxy.add(Fault("flip", at=at))

    _, body = put(proxy)

    assert [i for i, (a, b) in enumerate(zip(body, BODY, strict=True)) if a != b] == [place]


def test_of_two_bodies_on_their_way_to_a_fault_one_arrives_whole(
    proxy: FaultProxy, server: Server
) -> None:
    """It used to stop there for ever, and pushes of several layers waited until they gave up."""
    fault = Fault("reset", at=-1)
    proxy.add(fault)
    both = [http.client.HTTPConnection(proxy.host, timeout=60) for _ in range(2)]
    for connection in both:
        connection.putrequest("PUT", "/thing")
        connection.putheader("Content-Length", str(len(BODY)))
        connection.endheaders(BODY[:10])
    while fault.seen < 2:
        time.sleep(0.01)

    statuses = []
    for connection in both:
        with suppress(OSError):
            connection.send(BODY[10:])
            statuses.append(connection.getresponse().status)

    assert statuses == [200]
    assert server.double == [BODY]
