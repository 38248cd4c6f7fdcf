"""Uploads that are refused, cut off, moved or left unanswered."""

from __future__ import annotations

import os
import time

import pytest

from packager.core.errors import OutputFailed, PackagerError, ProtocolFailed
from packager.images.registry.client import RegistryClient
from packager.images.registry.clients import RegistryClients
from packager.images.registry.failures import ServiceLimited
from packager.images.registry.upload import UploadInterrupted
from tests.integration.images.registry.conftest import Certificate, Clients, upload_to
from tests.support.cases import cases
from tests.support.doubles.registry import PASSWORD, USER, FakeRegistry, Rule, sha256
from tests.support.refusals import raises_code

CHUNK = 1024 * 1024
# Much more than both sides' socket buffers, so that an early answer comes in mid-body.
BLOB = os.urandom(CHUNK) * 24
DIGEST = sha256(BLOB)


class Uploading:
    """One upload, of BLOB unless something else is given, and what it reported."""

    def __init__(self, client: RegistryClient, blob: bytes = BLOB) -> None:
        self.sent = 0
        self.committed: list[str] = []
        self.blob = blob
        told = {"on_sent": self._count, "on_commit": self.committed.append}
        self.writer = upload_to(client, len(blob), **told)

    def _count(self, sent: int) -> None:
        self.sent += sent

    def write(self) -> None:
        view = memoryview(self.blob)
        for start in range(0, len(self.blob), CHUNK):
            self.writer.write(view[start : start + CHUNK])

    def all(self) -> None:
        self.write()
        self.writer.commit(sha256(self.blob))


def uploading(registry: FakeRegistry, clients: RegistryClients) -> Uploading:
    return Uploading(clients.at(registry.host))


def test_an_empty_blob_arrives(clients: Clients) -> None:
    with FakeRegistry() as registry:
        Uploading(clients().at(registry.host), b"").all()

    assert registry.blobs["a/b", sha256(b"")] == b""


def test_a_size_limit_is_said_while_sending(clients: Clients) -> None:
    with FakeRegistry(chunks=True, patch_answers=[413, 413]) as registry:
        shared = clients()
        upload = uploading(registry, shared)
        with pytest.raises(UploadInterrupted, match="takes shorter bodies only"):
            upload.all()
        with pytest.raises(OutputFailed, match=f"refuses a blob of {len(BLOB)} bytes") as failed:
            uploading(registry, shared).all()

    assert "client_max_body_size" in failed.value.hint
    assert upload.sent < len(BLOB)


def test_a_size_limit_is_said_over_tls(clients: Clients, certificate: Certificate) -> None:
    with FakeRegistry(tls=certificate.server, patch_answers=[413]) as registry:
        upload = tls_uploading(registry, clients, certificate)
        with pytest.raises(UploadInterrupted, match="takes shorter bodies only"):
            upload.all()
        assert upload.sent < len(BLOB)
        tls_uploading(registry, clients, certificate).all()

    assert registry.blobs["a/b", DIGEST] == BLOB


@cases("a_registry_in_trouble_asks_for_the_whole_blob_again")
def test_a_registry_in_trouble_asks_for_the_whole_blob_again(
    clients: Clients, quirks: dict[str, object], said: str
) -> None:
    with FakeRegistry(**quirks) as registry:
        upload = uploading(registry, clients())
        with pytest.raises(UploadInterrupted, match=said):
            upload.all()
        assert upload.committed == []
        uploading(registry, clients()).all()

    assert registry.blobs["a/b", DIGEST] == BLOB


def test_a_refusal_is_told_by_its_code_alone(clients: Clients) -> None:
    with FakeRegistry(patch_answers=[400]) as registry, pytest.raises(ProtocolFailed) as failed:
        uploading(registry, clients()).all()

    assert "(SIZE_INVALID)" in failed.value.message
    assert "secret-of-the-server" not in failed.value.message


def test_a_limit_that_holds_for_hours_ends_the_upload(clients: Clients) -> None:
    body = '{"errors":[{"code":"TOOMANYREQUESTS","message":"Over the pull rate limit."}]}'
    limited = Rule(on="PUT upload", instead=True, status=429, body=body)
    with FakeRegistry(rules=[limited]) as registry, pytest.raises(ServiceLimited):
        uploading(registry, clients()).all()


def test_storage_gets_no_credentials_for_a_challenge_of_its_own(clients: Clients) -> None:
    challenge = {"WWW-Authenticate": 'Bearer realm="{storage}/token",service="storage"'}
    asks = Rule(on="PATCH upload", instead=True, storage=True, status=401, headers=challenge)
    quirks = {"auth": "basic", "location": "other-host", "rules": [asks]}
    with FakeRegistry(**quirks) as registry, raises_code("StorageRefused"):
        uploading(registry, clients(user=USER)).all()

    assert [seen for seen in registry.seen if seen.path.startswith("/token")] == []


def test_bytes_that_changed_on_the_way_ask_for_the_whole_blob_again(clients: Clients) -> None:
    with FakeRegistry() as registry:
        upload = uploading(registry, clients())
        upload.write()
        with pytest.raises(UploadInterrupted, match=r"400 \(DIGEST_INVALID\)"):
            upload.writer.commit(sha256(b"other"))


def test_a_short_blob_is_a_bug_of_ours(clients: Clients) -> None:
    with FakeRegistry() as registry:
        upload = uploading(registry, clients())
        upload.writer.write(memoryview(BLOB[:10]))
        with pytest.raises(PackagerError, match="10 bytes were written"):
            upload.writer.commit(DIGEST)


def test_abort_cancels_the_upload(clients: Clients) -> None:
    with FakeRegistry() as registry:
        uploading(registry, clients()).writer.abort()

    assert registry.uploads == {}
    assert len(registry.requests("DELETE")) == 1


def test_abort_in_mid_upload_never_raises_nor_waits(clients: Clients) -> None:
    with FakeRegistry() as registry:
        upload = uploading(registry, clients())
        upload.writer.write(memoryview(BLOB[:CHUNK]))
        started = time.monotonic()
        upload.writer.abort()
        upload.writer.abort()

    assert time.monotonic() - started < 60  # of the 120 in which a piece may leave
    assert registry.blobs == {}


@cases("secrets_are_in_no_error")
def test_secrets_are_in_no_error(clients: Clients, quirks: dict[str, object]) -> None:
    with FakeRegistry(auth="bearer", **quirks) as registry:
        upload = uploading(registry, clients(user=USER))
        with pytest.raises(PackagerError) as failed:
            upload.all()

    said = f"{failed.value.message} {failed.value.hint} {failed.value!r}"
    assert PASSWORD not in said
    assert not any(token in said for token in registry.tokens)
    assert "secret-of-the-server" not in said
    assert "_state" not in said


def tls_uploading(registry: FakeRegistry, clients: Clients, certificate: Certificate) -> Uploading:
    client = clients(ca_file=str(certificate.path)).at(registry.host)
    client._base = registry.url  # loopback is spoken to in the clear otherwise
    client._origin = client._origin.__class__("https", client._origin.host, client._origin.port)
    return Uploading(client)
