"""Clients that vanish, dawdle or send rubbish: no error of ours, and nobody waits for them."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.addons.server.pages import guard
from tests.support.api_server import ApiServer
from tests.support.cases import cases, content_of
from tests.support.raw_requests import JSON, post, receive, send
from tests.support.running_jobs import until

LIST = (
    f"Host: 127.0.0.1\r\nContent-Type: {JSON}\r\nX-Amz-Target: SageMaker.ListOptimizationJobs\r\n"
)
FORM = (
    "Host: {host}\r\nOrigin: http://{host}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
)
QUERY = "Host: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
OK = f"POST / HTTP/1.1\r\n{LIST}Content-Length: 2\r\n\r\n{{}}".encode()


def filled(text: str, server: ApiServer) -> str:
    """Put the heads above, and the server's address, into a text."""
    for name, value in (("list", LIST), ("query", QUERY), ("form", FORM)):
        text = text.replace(f"{{{name}}}", value)
    return text.replace("{host}", f"127.0.0.1:{server.port}")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    state = tmp_path_factory.mktemp("state")
    with ApiServer(state, body_s=0.2, idle_s=0.3, unread_s=0.2, with_pages=True) as running:
        yield running


@pytest.fixture
def server(shared: ApiServer, caplog: pytest.LogCaptureFixture) -> Iterator[ApiServer]:
    """The server, which has nothing to say of what its clients do."""
    shared.requests.clear()
    yield shared
    assert shared.failures == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert post(shared.port, b"{}").status == 200


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half_close(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(65536):
        pass
    connection.close()


@pytest.mark.parametrize("leave", [socket.socket.close, reset, half_close])
@cases("unfinished")
def test_a_client_that_leaves_within_a_body_is_no_error(
    server: ApiServer, path: str, head: str, body: str, leave: Callable[[socket.socket], None]
) -> None:
    head = filled(head, server)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n{body}".encode())
        leave(connection)

    until(lambda: len(server.requests) == 1)
    assert " 400 " in server.requests[0]


def test_an_endless_form_is_given_up(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "FORM_S", 0.1)
    head = filled(FORM, server)

    answer = send(
        server.port, f"POST /ui/jobs/new HTTP/1.1\r\n{head}Content-Length: 9\r\n\r\nab".encode()
    )

    assert answer.status == 408
    assert b"did not arrive in time" in answer.body


def test_a_form_in_pieces_of_unknown_number_is_refused_once_it_is_too_long(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "MOST_FORM_BYTES", 1000)
    head = filled(FORM, server) + CHUNKED

    answer = send(
        server.port, f"POST /ui/jobs/new HTTP/1.1\r\n{head}\r\n7d0\r\n{'a' * 2000}\r\n".encode()
    )

    assert answer.status == 413


@cases("rubbish")
def test_rubbish_is_refused_and_leaves_no_trace(server: ApiServer, case: dict[str, Any]) -> None:
    answer = send(server.port, content_of(case).replace(b"{list}", LIST.encode()))

    assert answer.status == case.get("status", 400)
    assert b"Traceback" not in answer.body


@pytest.mark.parametrize("head", [LIST + CHUNKED, f"{LIST}Content-Length: 2\r\n"])
def test_rubbish_behind_a_request_does_nothing(server: ApiServer, head: str) -> None:
    body = "2\r\n{}\r\n0\r\n\r\n" if "chunked" in head else "{}"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(f"POST / HTTP/1.1\r\n{head}\r\n{body}".encode())
        assert receive(connection).status == 200
        connection.sendall(b"\x00RUBBISH\r\n\r\n" + OK)
        answer = receive(connection)

    assert answer.status == 400
    assert len(server.requests) == 1


def test_trailers_change_nothing_of_a_request(server: ApiServer) -> None:
    head = f"POST / HTTP/1.1\r\n{LIST}{CHUNKED}\r\n2\r\n{{}}\r\n0\r\n"

    answer = send(server.port, f"{head}X-Amz-Target: SageMaker.CreateModel\r\n\r\n".encode())

    assert answer.document == {"OptimizationJobSummaries": []}


def test_a_client_that_asks_whether_it_may_send_is_told(server: ApiServer) -> None:
    head = OK.replace(b"\r\n\r\n{}", b"\r\nExpect: 100-continue\r\n\r\n")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head)
        assert connection.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert receive(connection).status == 200


def test_requests_of_one_connection_are_answered_in_order(server: ApiServer) -> None:
    second = OK.replace(b"ListOptimizationJobs", b"NoSuchOperation")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall((OK + second) * 20)
        found = b""
        while found.count(b"HTTP/1.1 ") < 40:
            found += connection.recv(65536)

    operations = [line.split()[2] for line in server.requests]
    assert operations == ["ListOptimizationJobs", "NoSuchOperation"] * 20


def test_a_connection_without_a_whole_request_is_closed(server: ApiServer) -> None:
    """Also the second request of a connection, and one that is only waited for."""
    for first, rest in ((b"", b"POST / HT"), (OK, b"POST / HT"), (OK, b""), (b"", b"")):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(first)
            if first:
                assert receive(connection).status == 200
            connection.sendall(rest)
            assert connection.recv(1) == b""


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system cannot do it")
def test_a_client_that_reads_nothing_loses_its_connection(server: ApiServer) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        asked = f"GET /ui/ui.css HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
        connection.sendall(asked * 500)
        until(lambda: not is_open(connection.getsockname()[1]))


def is_open(port: int) -> bool:
    """Return whether the server has a connection to this port of a client."""
    found = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(fields[2].endswith(f":{port:04X}") and fields[3] == "01" for fields in found)
