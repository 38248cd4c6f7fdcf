"""A real docker-registry with a configuration of the test's own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.conftest import need


@contextmanager
def docker_registry(root: Path, *, http: str = "", more: str = "") -> Iterator[str]:
    """Run one and yield its HOST:PORT; `http` and `more` are YAML of its configuration."""
    program = need("docker-registry")
    with ExitStack() as running:
        for last in (False, False, True):  # another program may take the port before it does
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                host = f"127.0.0.1:{probe.getsockname()[1]}"
            process = running.enter_context(_process(program, root, host, http=http, more=more))
            if _is_there(host, process):
                break
            if last:
                pytest.fail(f"docker-registry did not start: {(root / 'log').read_text()}")
        yield host


@contextmanager
def _process(
    program: str, root: Path, host: str, *, http: str, more: str
) -> Iterator[subprocess.Popen[bytes]]:
    (root / "config.yml").write_text(
        f"version: 0.1\n"
        f"storage: {{filesystem: {{rootdirectory: {root}/storage}}}}\n"
        f"http: {{addr: '{host}', secret: not-a-secret{http}}}\n{more}"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("REGISTRY_")}
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", str(root / "config.yml")],
            stdout=log,
            stderr=log,
            env={**environment, "OTEL_TRACES_EXPORTER": "none"},
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(120)


def _is_there(host: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether it answers; false once it has ended."""
    port = int(host.rpartition(":")[2])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False
