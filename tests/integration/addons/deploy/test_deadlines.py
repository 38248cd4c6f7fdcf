"""Servers that answer byte by byte: every wait has an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from artifact_cache.waits import TooLate, within
from packager.addons.deploy.kubernetes import client
from packager.addons.deploy.kubernetes.client import ApiServer, ObjectPlace
from packager.addons.deploy.kubernetes.kubeconfig import ClusterAccess
from packager.addons.deploy.sagemaker import clients
from packager.addons.deploy.sagemaker.clients import Clients
from packager.addons.deploy.sagemaker.live import LiveSageMaker
from packager.core.errors import Unavailable
from tests.support.doubles.hostile import HostileServer, Request

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"


@pytest.fixture(params=["head", "body"])
def trickling(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that sends one byte now and then, so that no read times out."""

    def drip(asked: Request) -> Iterator[bytes]:
        yield HEAD if request.param == "body" else b"HTTP/1.1 200 OK\r\nX: "
        for _ in range(10_000):
            server.wait(0.05)
            yield b" "

    with HostileServer(drip) as server:
        yield server.url


def test_a_slow_api_server_is_given_up(trickling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No time-out of the socket helps: on a busy machine one may come before the deadline."""
    monkeypatch.setattr(client, "CONNECT_S", 0.3)
    monkeypatch.setattr(client, "ANSWER_S", 0.3)
    monkeypatch.setattr(client.urllib3, "Timeout", lambda **given: None)
    began = time.monotonic()
    with pytest.raises(Unavailable, match="no whole answer within 1 s"):
        ApiServer(ClusterAccess(server=trickling)).listed(ObjectPlace("v1", "Pod", "models"), "a=b")
    assert time.monotonic() - began < 20


def test_a_slow_api_server_leaves_no_thread(
    trickling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends by itself: whoever waits with a deadline leaves nothing behind."""
    monkeypatch.setattr(client, "within", lambda seconds, work: work())
    monkeypatch.setattr(client, "ANSWER_S", 0.3)
    with pytest.raises(Unavailable, match="does not answer: ReadTimeoutError"):
        ApiServer(ClusterAccess(server=trickling)).listed(ObjectPlace("v1", "Pod", "models"), "a=b")


def test_a_slow_aws_service_is_given_up(trickling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "CALL_S", 0.6)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", trickling)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    began = time.monotonic()
    with pytest.raises(Unavailable, match="DescribeEndpoint: no whole answer within 1 s"):
        LiveSageMaker(Clients("us-east-1")).status("llama")
    assert time.monotonic() - began < 20


def test_work_that_fails_in_time_raises_as_it_did() -> None:
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)
    assert within(5, lambda: None) is None
    with pytest.raises(TooLate):
        within(0.01, threading.Event().wait)
