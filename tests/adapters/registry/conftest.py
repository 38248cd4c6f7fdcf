"""A real registry with a password, and clients that neither sleep nor know secrets."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from packager.adapters.registry.client import RegistryClients
from packager.adapters.registry.credentials import Credentials
from packager.adapters.registry.transport import Transport
from tests.conftest import need
from tests.doubles.registry import PASSWORD, USER

# `htpasswd -nB alice` for the password of the doubles.
_HTPASSWD = f"{USER}:$2y$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2\n"


@dataclass
class Clients:
    """What tests make clients with, and how long those wanted to sleep."""

    slept: list[float] = field(default_factory=list)

    def __call__(
        self,
        *,
        user: str = "",
        password: str = PASSWORD,
        identity_token: str = "",
        ca_file: str = "",
    ) -> RegistryClients:
        found = Credentials(user=user, password=password, identity_token=identity_token)
        credentials = found if user or identity_token else None
        return RegistryClients(
            find_credentials=lambda host: credentials,
            transport=Transport(sleep=self.slept.append, ca_file=ca_file),
        )


@pytest.fixture
def clients() -> Clients:
    return Clients()


@pytest.fixture(scope="session")
def guarded_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a real docker-registry that wants the doubles' user and password."""
    program = need("docker-registry")
    root = tmp_path_factory.mktemp("guarded")
    (root / "htpasswd").write_text(_HTPASSWD)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    (root / "config.yml").write_text(
        f"version: 0.1\n"
        f"storage: {{filesystem: {{rootdirectory: {root}/storage}}}}\n"
        f"http: {{addr: '{host}', secret: not-a-secret}}\n"
        f"auth: {{htpasswd: {{realm: test, path: {root}/htpasswd}}}}\n"
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
        _wait_for(f"http://{host}/v2/", process)
        yield host
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5)
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail("docker-registry did not start")


@dataclass
class Certificate:
    """A certificate for 127.0.0.1 and registry.test that no system trusts."""

    path: Path
    server: ssl.SSLContext


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    root = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [need("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        + ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:registry.test"]
        + ["-keyout", str(root / "key.pem"), "-out", str(root / "certificate.pem")],
        check=True,
        capture_output=True,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(root / "certificate.pem", root / "key.pem")
    return Certificate(root / "certificate.pem", server)
