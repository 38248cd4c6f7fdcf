"""`packager serve` as a process of its own, and clients of it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.support.commandline import Started, start_packager

REGION = "us-east-1"
ROLE = "arn:aws:iam::000000000000:role/packager"
_SERVICES = ("SAGEMAKER", "SAGEMAKER_RUNTIME", "STS", "IAM", "CLOUDWATCH_LOGS")


class ApiServer:
    """A server that can be killed and started again, with its state in one directory."""

    def __init__(self, place: Path, *options: str, **environment: str) -> None:
        self._place = place
        self._options = options
        self._environment = {"XDG_STATE_HOME": str(place), **environment}
        self._process: Started | None = None
        self.url = ""

    def start(self) -> None:
        """Start it, and wait until it says where it listens."""
        self._process = start_packager(
            *("serve", "--listen", "127.0.0.1:0", "--format", "json", *self._options),
            env=self._environment,
            log=self._place / "serve.log",
        )
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line == "}\n":
                break
        assert lines, self.log()
        self.url = json.loads("".join(lines))["url"]

    def kill(self) -> None:
        """Kill it, as a power cut does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as a user does."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process.close()
            self._process = None

    def log(self) -> str:
        """Return what it has said on stderr."""
        return (self._place / "serve.log").read_text(encoding="utf-8")

    def client(self, service: str) -> Any:
        """Return an unmodified client of AWS's."""
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=32),
        )

    def variables(self) -> dict[str, str]:
        """Return variables by which programs find the server."""
        own = {f"AWS_ENDPOINT_URL_{name}": self.url for name in _SERVICES}
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        return {**own, **keys, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}


@contextmanager
def api_server(place: Path, *options: str, **environment: str) -> Iterator[ApiServer]:
    """Run a server; end it, and remove the containers of its endpoints."""
    try:
        with api_process(place, *options, **environment) as server:
            yield server
    finally:
        remove_containers()


@contextmanager
def api_process(place: Path, *options: str, **environment: str) -> Iterator[ApiServer]:
    """Run a server that deploys nothing; end it."""
    server = ApiServer(place, *options, **environment)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def remove_containers() -> None:
    """Remove whatever endpoints have left in the Engine."""
    import docker

    from packager.serve.endpoints.containers import SERVER_LABEL

    engine = docker.from_env()
    for container in engine.containers.list(all=True, filters={"label": SERVER_LABEL}):
        container.remove(force=True)
