"""The command by which a container engine asks for health, run as the engine runs it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from packager.planning.health import health_check
from tests.support.engine_plans import plan_for


@contextmanager
def server(status: int) -> Iterator[tuple[int, list[str]]]:
    """Answer every GET with a status; give the port, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield serving.server_address[1], asked
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()


def status_of_check(port: int) -> int:
    check = health_check(plan_for("vllm"), port)
    assert check is not None
    command = [sys.executable, *check.command[1:]]
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (404, 1)])
def test_only_a_server_that_says_200_is_healthy(status: int, code: int) -> None:
    with server(status) as (port, asked):
        assert status_of_check(port) == code

    assert asked == ["/health"]


def test_where_nobody_listens_nothing_is_healthy() -> None:
    with server(200) as (port, _):
        pass

    assert status_of_check(port) == 1
