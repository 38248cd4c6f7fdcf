"""A real registry whose certificate is signed by an authority that no system knows."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.core.errors import PackagerError, Unavailable, UsageError
from packager.core.files.pipes import open_waiting
from packager.images.registry import transport
from packager.images.registry.clients import RegistryClients
from packager.images.registry.credential import Credentials
from packager.images.registry.transport import Transport
from packager.images.registry.upload import put_blob
from tests.conftest import need
from tests.support.commandline import TINY, Packager
from tests.support.doubles.registry import PASSWORD, USER, FakeRegistry
from tests.support.real_registry import docker_registry

pytestmark = pytest.mark.live

DAYS = ["-days", "2", "-nodes", "-newkey", "rsa:2048"]


class Authority:
    """A throwaway authority."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.file, self._key, self._root = root / "ca.crt", root / "ca.key", root
        openssl("req", "-x509", *DAYS, "-subj", "/CN=throwaway", *self._to(self._key, self.file))

    def sign(self, name: str) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and its key."""
        request, key, signed = (self._root / f"{name}.{end}" for end in ("csr", "key", "crt"))
        extension = self._root / "extension"
        extension.write_text("subjectAltName=IP:127.0.0.1\n")
        openssl("req", *DAYS[2:], "-subj", f"/CN={name}", *self._to(key, request))
        openssl(
            *["x509", "-req", "-in", str(request), "-CA", str(self.file), "-CAkey", str(self._key)],
            *["-CAcreateserial", "-extfile", str(extension), "-days", "2", "-out", str(signed)],
        )
        return signed, key

    def _to(self, key: Path, out: Path) -> list[str]:
        return ["-keyout", str(key), "-out", str(out)]


def openssl(*arguments: str) -> None:
    subprocess.run([need("openssl"), *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "other")


@pytest.fixture(scope="module")
def tls_registry(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a docker-registry that speaks TLS."""
    certificate, key = authority.sign("registry")
    tls = f", tls: {{certificate: {certificate}, key: {key}}}"
    with docker_registry(tmp_path_factory.mktemp("tls-registry"), http=tls) as host:
        yield host


def test_an_authority_that_docker_has_for_the_host_is_trusted(
    tls_registry: str, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / tls_registry).mkdir()
    shutil.copy(authority.file, tmp_path / tls_registry)
    client = RegistryClients(transport=Transport(certificates=tmp_path)).at(tls_registry)

    digest = put_blob(client, "a/b", b"by docker's directory")

    assert client.head_blob("a/b", digest) == 21
    assert Transport(certificates=tmp_path).base_url("127.0.0.1:1") == "http://127.0.0.1:1"


def test_an_authority_in_the_environment_is_trusted_on_tls(
    tls_registry: str, authority: Authority, stranger: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))

    RegistryClients(ca_file=str(stranger.file)).at(tls_registry).ping()


def test_an_authority_comes_through_a_pipe_or_not_at_all(
    tls_registry: str, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    giver = threading.Thread(target=lambda: pipe.write_bytes(authority.file.read_bytes()))
    giver.start()

    RegistryClients(ca_file=str(pipe)).at(tls_registry).ping()

    giver.join()
    monkeypatch.setattr(transport, "open_waiting", lambda path: open_waiting(path, 0.2))
    with pytest.raises(UsageError, match="certificates cannot be read"):
        RegistryClients(ca_file=str(pipe)).at(tls_registry).ping()


def test_another_authority_is_refused_with_a_hint(tls_registry: str, stranger: Authority) -> None:
    with pytest.raises(Unavailable, match="its certificate is not trusted") as failed:
        RegistryClients(ca_file=str(stranger.file)).at(tls_registry).ping()

    assert "--ca-file FILE" in failed.value.hint
    assert not failed.value.transient


def test_plain_http_to_a_registry_that_speaks_tls_is_explained(tls_registry: str) -> None:
    with pytest.raises(PackagerError) as failed:
        RegistryClients().at(tls_registry).ping()

    assert "--ca-file FILE" in failed.value.hint


def test_a_plain_registry_stays_reachable_when_an_authority_is_named(authority: Authority) -> None:
    with FakeRegistry() as registry:
        with pytest.raises(Unavailable, match="does not speak TLS") as failed:
            RegistryClients(ca_file=str(authority.file)).at(registry.host).ping()
        RegistryClients(ca_file=str(authority.file), insecure_hosts={registry.host}).at(
            registry.host
        ).ping()

    assert f"--insecure-registry {registry.host}" in failed.value.hint


def test_credentials_stay_with_their_host_over_tls(authority: Authority) -> None:
    certificate, key = authority.sign("double")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # The double complains about credentials at its storage host.
    quirks = {"auth": "basic", "location": "other-host", "blobs_elsewhere": True}
    with FakeRegistry(tls=context, **quirks) as registry:
        clients = RegistryClients(
            ca_file=str(authority.file),
            find_credentials=lambda host: Credentials(user=USER, password=PASSWORD),
        )
        client = clients.at(registry.host)
        digest = put_blob(client, "a/b", b"layer")
        assert client.get_blob("a/b", digest, 10) == b"layer"


def test_the_command_line_names_an_authority(
    tls_registry: str, authority: Authority, stranger: Authority, packager: Packager
) -> None:
    target = f"{tls_registry}/models/tiny:1"
    build = ["build", "--model", str(TINY), "--instance", "local", "--base", "scratch"]

    refused = packager(*build, "--output", target, "--ca-file", str(stranger.file), status=69)
    built = packager(*build, "--output", target, "--ca-file", str(authority.file))
    packager("inspect", target, "--ca-file", str(authority.file), status=0)

    assert "--ca-file FILE" in refused.err
    assert built.out.startswith(f"{target}@sha256:"), built.err
