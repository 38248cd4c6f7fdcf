"""A real docker-registry with a configuration of the test's own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import need


@contextmanager
def docker_registry(root: Path, *, http: str = "", more: str = "") -> Iterator[str]:
    """Run one and yield its HOST:PORT; `http` and `more` are YAML of its configuration."""
    program = need("docker-registry")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
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
        _wait_for(host, process)
        yield host
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(host: str, process: subprocess.Popen[bytes]) -> None:
    port = int(host.rpartition(":")[2])
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("docker-registry did not start")
