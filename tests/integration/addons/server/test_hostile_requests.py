"""Requests that no client of AWS sends: each is refused in AWS's form, and nothing is done."""

from __future__ import annotations

import gzip
import json
import resource
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from packager.addons.server import application, bodies
from tests.support.api_server import ApiServer, optimization_body
from tests.support.cases import cases
from tests.support.raw_requests import JSON, post, seconds_until_closed, send

CREATE = "SageMaker.CreateOptimizationJob"
SLOW = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"a" * 1000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(tmp_path, body_s=1.0, idle_s=2.0) as running:
        yield running


def body(**changes: object) -> bytes:
    return json.dumps(optimization_body("one", **changes)).encode()


def nothing_was_done(server: ApiServer) -> bool:
    return server.client("sagemaker").list_optimization_jobs()["OptimizationJobSummaries"] == []


def test_a_request_made_by_hand_is_answered(server: ApiServer) -> None:
    answer = post(server.port, body(), target=CREATE)

    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/x-amz-json-1.1"
    assert len(answer.headers["x-amzn-RequestId"]) == 36
    assert answer.headers["Server"] == "packager"
    assert answer.document["OptimizationJobArn"].endswith("optimization-job/one")


@cases("wrong")
def test_what_is_wrong_is_told_in_the_protocol_s_form(
    server: ApiServer, data: str, headers: dict[str, str], status: int, kind: str
) -> None:
    answer = post(server.port, data.encode(), **headers)

    assert (answer.status, answer.document["__type"]) == (status, kind)
    assert answer.headers["x-amzn-ErrorType"] == kind
    assert answer.headers["x-amzn-RequestId"]


@cases("elsewhere")
def test_a_page_or_a_form_of_another_site_makes_no_job(
    server: ApiServer, headers: dict[str, str], status: int
) -> None:
    """What a browser sends as a form, without asking first, has another type."""
    assert post(server.port, body(), target=CREATE, **headers).status == status
    assert nothing_was_done(server)


def test_a_browser_is_not_told_that_it_may_ask(server: ApiServer) -> None:
    head = f"OPTIONS / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n"
    asked = head + "Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n"
    answer = send(server.port, asked.encode())

    assert answer.status == 403
    assert not any(name.lower().startswith("access-control") for name in answer.headers)


def head_of(server: ApiServer, *lines: str) -> bytes:
    """Return the head of a request by which a job would be made."""
    ours = (f"Host: 127.0.0.1:{server.port}", f"Content-Type: {JSON}", f"X-Amz-Target: {CREATE}")
    return "\r\n".join(("POST / HTTP/1.1", *ours, *lines, "", "")).encode()


@pytest.mark.parametrize("size", [1024 * 1024 + 1, 30 * 1024 * 1024])
def test_a_body_that_is_too_large_is_refused_unread(server: ApiServer, size: int) -> None:
    announced = post(server.port, b"{}", Content_Length=str(size))

    told = (announced.status, announced.document["__type"])
    assert told == (413, "RequestEntityTooLargeException")


def test_headers_that_never_end_are_closed_upon(server: ApiServer) -> None:
    assert seconds_until_closed(server.port, SLOW, drip_s=0.1, most_s=20) < 10


@cases("endless")
def test_a_body_that_never_ends_is_given_up(
    server: ApiServer, length: str, data: bytes, status: int, kind: str
) -> None:
    """Not when it has ended, or has taken more than was counted for it."""
    answer = send(server.port, head_of(server, length) + data)

    assert (answer.status, answer.document["__type"]) == (status, kind)
    assert nothing_was_done(server)


def test_many_slow_clients_keep_nobody_waiting(server: ApiServer) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert min(soft, hard) > 300
    with ThreadPoolExecutor(100) as threads:
        for _ in range(100):
            threads.submit(seconds_until_closed, server.port, SLOW, drip_s=0.2, most_s=5)
        assert post(server.port, b"{}").status == 200


@pytest.mark.parametrize("limit", ["MAX_AT_ONCE", "MAX_HELD_BYTES"])
def test_more_than_the_server_can_hold_is_told_to_come_back(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """One body is on its way; nothing else is begun meanwhile, and everything is afterwards."""
    module, most = (application, 1) if limit == "MAX_AT_ONCE" else (bodies, 1500)
    monkeypatch.setattr(module, limit, most)
    begun = head_of(server, "Content-Length: 1000") + b"{"
    slow = threading.Thread(target=send, args=(server.port, begun))
    slow.start()
    time.sleep(0.3)
    busy = post(server.port, b" " * 1000)
    slow.join()  # given up after a second

    assert (busy.status, busy.document["__type"]) == (400, "ThrottlingException")
    assert post(server.port, b" " * 1000).status == 200


def test_a_packed_body_is_counted_whole(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_HELD_BYTES", 64 * 1024)
    packed = zlib.compress(b"{}" + b" " * 100)

    busy = post(server.port, packed, Content_Encoding="deflate")

    assert (busy.status, busy.document["__type"]) == (400, "ThrottlingException")
    assert post(server.port, b"{}").status == 200


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"{}", mtime=0)[:10]),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-4]),
        ("gzip", gzip.compress(b"{}", mtime=0) + b"{}"),
        ("gzip", b""),
        ("deflate", b"{}"),
        ("br", b"{}"),
    ],
)
def test_a_body_that_is_not_packed_as_said_is_refused(
    server: ApiServer, encoding: str, body: bytes
) -> None:
    answer = post(server.port, body, Content_Encoding=encoding)

    assert (answer.status, answer.document["__type"]) == (400, "SerializationException")


def test_a_bug_is_told_without_details(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(type(server.jobs), "list_quickly", broken)
    answer = post(server.port, b"{}")

    assert (answer.status, answer.document["__type"]) == (500, "InternalFailure")
    assert b"hunter2" not in answer.body
    (told,) = server.failures
    assert answer.headers["x-amzn-RequestId"] in told
    assert "hunter2" in told
    server.failures.clear()


def test_paths_that_are_not_there_are_told_in_the_protocol_s_form(server: ApiServer) -> None:
    for first in (b"GET /", b"PUT /", b"GET /../../etc/passwd", b"DELETE /endpoints"):
        answer = send(
            server.port, first + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        )
        assert answer.status in (404, 405)
        assert answer.document["__type"] == "UnknownOperationException"


def test_requests_are_told_in_one_line_each(server: ApiServer) -> None:
    post(server.port, b"{}", target="SageMaker.Nothing")
    send(server.port, b"GET /a%0Ab HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")

    first, second = server.requests
    assert " Nothing 404 " in first
    assert first.startswith("127.0.0.1 - ")
    assert second.count("\n") == 0
