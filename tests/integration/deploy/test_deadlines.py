"""Servers that answer byte by byte: every wait has an end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from packager.deploy.deadlines import TooLate, within
from packager.deploy.kubernetes import client
from packager.deploy.kubernetes.client import ApiServer, Place
from packager.deploy.kubernetes.kubeconfig import ClusterAccess
from packager.deploy.sagemaker import clients
from packager.deploy.sagemaker.clients import Clients
from packager.deploy.sagemaker.live import LiveSageMaker
from packager.errors import Unavailable

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"


@pytest.fixture(params=["head", "body"])
def trickling(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that sends one byte now and then, so that no read times out."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def answer() -> None:
        peers = []
        listening.settimeout(0.05)
        while not ended.is_set():
            try:
                peer, _ = listening.accept()
                peer.sendall(HEAD if request.param == "body" else b"HTTP/1.1 200 OK\r\nX: ")
                peers.append(peer)
            except TimeoutError:
                pass
            for one in peers:
                try:
                    one.sendall(b" ")
                except OSError:
                    peers.remove(one)
                    break
        for one in peers:
            one.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        ended.set()
        thread.join()
        listening.close()


def test_an_api_server_that_trickles_is_given_up(
    trickling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CONNECT_S", 0.3)
    monkeypatch.setattr(client, "ANSWER_S", 0.3)
    began = time.monotonic()
    with pytest.raises(Unavailable, match="no whole answer within 1 s"):
        ApiServer(ClusterAccess(server=trickling)).listed(Place("v1", "Pod", "models"), "a=b")
    assert time.monotonic() - began < 20


def test_a_service_of_aws_that_trickles_is_given_up(
    trickling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
