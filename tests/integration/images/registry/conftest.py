"""A real registry with a password, and clients that neither sleep nor know secrets."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from packager.images.registry.client import RegistryClient
from packager.images.registry.clients import RegistryClients
from packager.images.registry.credential import Credentials
from packager.images.registry.transport import Transport
from packager.images.registry.upload import BlobUpload
from tests.conftest import need
from tests.support.doubles.registry import PASSWORD, USER, FakeRegistry
from tests.support.processes import run_program
from tests.support.real_registry import docker_registry

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

    @contextmanager
    def of(self, **quirks: Any) -> Iterator[tuple[FakeRegistry, RegistryClient]]:
        """A registry with these quirks, and a client that has the password if one is wanted."""
        with FakeRegistry(**quirks) as registry:
            yield registry, self(user=USER if "auth" in quirks else "").at(registry.host)


def upload_to(client: RegistryClient, size: int | None, **more: Any) -> BlobUpload:
    """Begin an upload to `a/b`; `more` has a digest, or who is told of progress."""
    told: Any = {"on_sent": lambda count: None, "on_commit": lambda digest: None, **more}
    return BlobUpload(client, "a/b", client.start_upload("a/b"), size, **told)


@pytest.fixture
def clients() -> Clients:
    return Clients()


@pytest.fixture(scope="session")
def guarded_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a real docker-registry that wants the doubles' user and password."""
    root = tmp_path_factory.mktemp("guarded")
    (root / "htpasswd").write_text(_HTPASSWD)
    guard = f"auth: {{htpasswd: {{realm: test, path: {root}/htpasswd}}}}\n"
    with docker_registry(root, more=guard) as host:
        yield host


@dataclass
class Certificate:
    """A certificate for 127.0.0.1 and registry.test that no system trusts."""

    path: Path
    server: ssl.SSLContext


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    root = tmp_path_factory.mktemp("tls")
    run_program(
        *(need("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:registry.test"),
        *("-keyout", root / "key.pem", "-out", root / "certificate.pem"),
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(root / "certificate.pem", root / "key.pem")
    return Certificate(root / "certificate.pem", server)
