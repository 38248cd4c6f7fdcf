"""The client against a registry that does what real ones have been seen to do."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import pytest

from packager.core.errors import AccessDenied, NotFound, ProtocolFailed, Unavailable, UsageError
from packager.core.image import MEDIA_MANIFEST
from packager.images.registry.auth import Challenge, parse_challenges
from packager.images.registry.client import RegistryClient
from packager.images.registry.transport import Transport, retry_after_s
from tests.integration.images.registry.conftest import Certificate, Clients, upload_to
from tests.support.cases import cases
from tests.support.doubles.fault_proxy import Action, Exchange, Fault, FaultProxy
from tests.support.doubles.registry import IDENTITY_TOKEN, PASSWORD, USER, FakeRegistry, sha256

BLOB = os.urandom(3_000_000)


def read(client: RegistryClient, digest: str, offset: int = 0, length: int = len(BLOB)) -> bytes:
    return b"".join(client.read_blob("a/b", digest, offset=offset, length=length))


# Finding the registry


def test_a_registry_that_is_not_there_is_named_with_the_reason(clients: Clients) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(Unavailable) as failed:
            clients().at(host).ping()

    assert failed.value.message == f"cannot reach the registry at {host!r}: connection refused"
    assert failed.value.hint


def test_an_unknown_host_is_named(clients: Clients) -> None:
    with pytest.raises(Unavailable, match=r"'no-such-host\.invalid': the host name is not known"):
        clients().at("no-such-host.invalid").ping()


def test_a_web_server_is_no_registry(clients: Clients) -> None:
    with clients.of() as (registry, client), pytest.raises(ProtocolFailed) as failed:
        client._base += "/elsewhere"
        client.ping()

    assert failed.value.hint == f"is {registry.host!r} a container registry?"


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(
    clients: Clients, certificate: Certificate
) -> None:
    with FakeRegistry(tls=certificate.server) as registry, pytest.raises(Unavailable) as failed:
        tls_client(clients, registry, ca_file="").ping()

    assert "its certificate is not trusted: self-signed certificate" in failed.value.message
    assert "SSL_CERT_FILE" in failed.value.hint
    assert clients.slept == []


def test_a_certificate_of_the_user_is_trusted(clients: Clients, certificate: Certificate) -> None:
    with FakeRegistry(tls=certificate.server) as registry:
        tls_client(clients, registry, ca_file=str(certificate.path)).ping()


def test_plain_http_on_a_tls_address_is_explained(clients: Clients) -> None:
    with FakeRegistry() as registry, pytest.raises(Unavailable) as failed:
        tls_client(clients, registry, ca_file="").ping()

    assert "it does not speak TLS" in failed.value.message
    assert "insecure registry" in failed.value.hint


def test_certificates_that_cannot_be_read_are_named(clients: Clients) -> None:
    with pytest.raises(UsageError, match=r"'/no/such/file\.pem'"):
        clients(ca_file="/no/such/file.pem").at("registry.invalid").ping()


@cases("host")
def test_plain_http_is_for_loopback_and_named_hosts_only(host: str, scheme: str) -> None:
    transport = Transport(insecure_hosts={"r.internal:5000", "other.internal"})

    assert transport.base_url(host) == f"{scheme}://{host}"


def tls_client(clients: Clients, registry: FakeRegistry, ca_file: str) -> RegistryClient:
    """A client that speaks TLS although the host is loopback."""
    client = clients(ca_file=ca_file).at(registry.host)
    client._base = f"https://{registry.host}"
    return client


# Trying again


def test_a_busy_registry_is_given_the_time_it_asks_for(clients: Clients) -> None:
    with clients.of(busy=2) as (_, client):
        assert client.head_blob("a/b", sha256(b"x")) is None

    assert clients.slept == [7.0, 7.0]


@cases("retry_after")
def test_retry_after_is_bounded(text: str, seconds: float) -> None:
    assert retry_after_s({"Retry-After": text}) == seconds


# Manifests


def test_a_manifest_comes_back_with_its_digest(clients: Clients) -> None:
    with clients.of() as (registry, client):
        digest = registry.put_manifest("a/b", "1", b'{"x": 1}', MEDIA_MANIFEST)
        by_tag, by_digest = client.get_manifest("a/b", "1"), client.get_manifest("a/b", digest)
        head = client.head_manifest("a/b", "1")

    assert by_tag == by_digest
    assert (by_tag.digest, by_tag.media_type, by_tag.data) == (digest, MEDIA_MANIFEST, b'{"x": 1}')
    assert head is not None
    assert (head.digest, head.media_type, head.size) == (digest, MEDIA_MANIFEST, 8)


def test_a_manifest_that_is_not_there_is_named(clients: Clients) -> None:
    with clients.of() as (_, client):
        assert client.head_manifest("a/b", "1") is None
        with pytest.raises(NotFound, match=r"has no manifest '1' in 'a/b' \(MANIFEST_UNKNOWN\)"):
            client.get_manifest("a/b", "1")


def test_a_manifest_under_a_wrong_digest_is_refused(clients: Clients) -> None:
    other = sha256(b"other")
    with clients.of() as (registry, client):
        registry.put_manifest("a/b", other, b"{}", MEDIA_MANIFEST)
        with pytest.raises(ProtocolFailed, match=other):
            client.get_manifest("a/b", other)


# Blobs


both_with_ranges = pytest.mark.parametrize(
    "ranges", [True, False], ids=["with ranges", "without ranges"]
)


@both_with_ranges
def test_a_blob_is_read_whole_or_in_part(clients: Clients, ranges: bool) -> None:
    with clients.of(ranges=ranges) as (registry, client):
        digest = registry.put("a/b", BLOB)
        assert client.head_blob("a/b", digest) == len(BLOB)
        assert client.get_blob("a/b", digest, len(BLOB)) == BLOB
        assert read(client, digest) == BLOB
        assert read(client, digest, 1_500_000, 10) == BLOB[1_500_000:1_500_010]
        assert read(client, digest, 0, 10) == BLOB[:10]


@both_with_ranges
def test_a_blob_that_breaks_off_is_taken_up_again(clients: Clients, ranges: bool) -> None:
    with clients.of(blob_cuts=3, ranges=ranges) as (registry, client):
        digest = registry.put("a/b", BLOB)
        assert read(client, digest) == BLOB

    assert len(clients.slept) == 3


CONFIG = BLOB[:131_000]  # a configuration, say: it comes in several pieces


def document_through(
    clients: Clients, *faults: Fault, ranges: bool = True
) -> tuple[bytes, list[Exchange]]:
    """Read CONFIG over a line with these faults; return it, and the requests that it took."""
    with FakeRegistry(ranges=ranges) as registry, FaultProxy(registry.host) as proxy:
        digest = registry.put("a/b", CONFIG)
        proxy.add(*faults)
        found = clients().at(proxy.host).get_blob("a/b", digest, len(CONFIG))
        return found, proxy.requests("GET", "/blobs/")


def on_blobs(action: Action, **how: Any) -> Fault:
    return Fault(action, method="GET", path="/blobs/", **how)


@both_with_ranges
@pytest.mark.parametrize("how", ["cut", "truncate"])
@pytest.mark.parametrize("at", [0, 1, 70_000, -1])
def test_a_document_whose_body_is_cut_is_taken_up_where_it_broke(
    clients: Clients, at: int, how: Literal["cut", "truncate"], ranges: bool
) -> None:
    found, (first, second) = document_through(clients, on_blobs(how, at=at), ranges=ranges)

    assert found == CONFIG
    offset = second.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-")
    assert "range" not in first.headers
    # A reset may overtake bytes; an orderly end does not.
    assert int(offset) <= at % len(CONFIG)
    assert how == "cut" or int(offset) == at % len(CONFIG)


def test_a_document_that_is_cut_again_and_again_is_given_up(clients: Clients) -> None:
    with clients.of(blob_cuts=1000) as (registry, client):
        digest = registry.put("a/b", CONFIG)
        with pytest.raises(Unavailable, match="the connection was cut"):
            client.get_blob("a/b", digest, len(CONFIG))

    assert len(clients.slept) == 4
    assert len(registry.seen) == 5


ELSEWHERE = {"Content-Range": "bytes 7-8/131000"}


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (on_blobs("flip", at=5), sha256(CONFIG)),
        (on_blobs("answer", status=206, headers=ELSEWHERE), "with another range"),
    ],
    ids=["another document", "another range than the one asked for"],
)
def test_what_does_not_go_on_behind_the_break_is_refused(
    clients: Clients, then: Fault, reason: str
) -> None:
    with pytest.raises(ProtocolFailed, match=reason):
        document_through(clients, on_blobs("truncate", at=70_000), replace(then))


def test_a_document_that_broke_off_behind_its_last_byte_is_asked_for_anew(clients: Clients) -> None:
    faults = on_blobs("truncate", at=70_000), on_blobs("answer", status=416)

    found, asked = document_through(clients, *faults)

    assert (found, len(asked)) == (CONFIG, 3)


@pytest.mark.parametrize("at", [0, 5, -1])
def test_a_manifest_whose_body_is_cut_is_asked_for_again(clients: Clients, at: int) -> None:
    data = b'{"x": "' + b"y" * 5000 + b'"}'
    with FakeRegistry() as registry, FaultProxy(registry.host) as proxy:
        digest = registry.put_manifest("a/b", "1", data, MEDIA_MANIFEST)
        proxy.add(Fault("cut", method="GET", path="/manifests/", at=at))
        found = clients().at(proxy.host).get_manifest("a/b", "1")

    assert (found.digest, found.data) == (digest, data)


def test_a_blob_that_never_gets_on_fails(clients: Clients) -> None:
    with clients.of(blob_cuts=1000, ranges=False) as (registry, client):
        digest = registry.put("a/b", BLOB[:2])
        with pytest.raises(Unavailable):
            read(client, digest, 0, 2)


def test_a_damaged_blob_is_refused(clients: Clients) -> None:
    with clients.of(damage=True) as (registry, client):
        digest = registry.put("a/b", BLOB)
        with pytest.raises(ProtocolFailed, match=digest):
            read(client, digest)
        with pytest.raises(ProtocolFailed, match=digest):
            client.get_blob("a/b", digest, len(BLOB))


# Credentials


def test_nothing_is_sent_before_the_registry_asks(clients: Clients) -> None:
    with FakeRegistry() as registry:  # complains about unasked credentials
        clients(user=USER).at(registry.host).ping()


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_credentials_open_the_registry(clients: Clients, auth: str) -> None:
    with clients.of(auth=auth) as (registry, client):
        digest = registry.put("a/b", BLOB)
        client.ping()
        client.cancel_upload("a/b", client.start_upload("a/b"))
        assert read(client, digest) == BLOB


def test_one_token_serves_reading_and_writing_a_repository(clients: Clients) -> None:
    with clients.of(auth="bearer") as (registry, client):
        client.ping()
        client.start_upload("a/b")
        client.head_blob("a/b", sha256(b"x"))
        client.start_upload("a/b")

    assert registry.tokens_given == 1


def test_a_mount_asks_for_both_repositories(clients: Clients) -> None:
    with clients.of(auth="bearer") as (registry, client):
        digest = registry.put("base", b"layer")
        assert client.mount_blob("a/b", digest, "base") is None

    [token_request] = registry.requests("GET", "/token")
    assert "scope=repository%3Aa%2Fb%3Apull%2Cpush" in token_request.path
    assert "scope=repository%3Abase%3Apull" in token_request.path


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_a_wrong_password_is_said_without_it(clients: Clients, auth: str) -> None:
    with FakeRegistry(auth=auth) as registry, pytest.raises(AccessDenied) as denied:
        client = clients(user=USER, password="wrong s3cret").at(registry.host)
        client.ping()
        client.start_upload("a/b")

    assert f"{registry.host!r} does not allow user 'alice'" in denied.value.message
    assert denied.value.hint.startswith(f"docker login {registry.host}")
    assert "s3cret" not in f"{denied.value.message}{denied.value.hint}"


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_missing_credentials_are_said(clients: Clients, auth: str) -> None:
    with FakeRegistry(auth=auth) as registry, pytest.raises(AccessDenied) as denied:
        clients().at(registry.host).start_upload("a/b")

    assert denied.value.message == (
        f"{registry.host!r} wants credentials to push to 'a/b', and none were found"
    )
    assert denied.value.hint == f"docker login {registry.host}"


def test_a_right_that_is_missing_is_said(clients: Clients) -> None:
    forbidden = frozenset({("a/b", "push")})
    for auth in ("basic", "bearer"):
        with (
            FakeRegistry(auth=auth, forbidden=forbidden) as registry,
            pytest.raises(AccessDenied, match="does not allow user 'alice' to push to 'a/b'"),
        ):
            clients(user=USER).at(registry.host).start_upload("a/b")


def test_credentials_do_not_follow_a_redirect(clients: Clients) -> None:
    with clients.of(auth="basic", blobs_elsewhere=True) as (registry, client):
        digest = registry.put("a/b", BLOB)
        assert read(client, digest) == BLOB

    [elsewhere] = [seen for seen in registry.seen if seen.storage]
    assert elsewhere.authorization == ""


def test_an_identity_token_buys_access(clients: Clients) -> None:
    with FakeRegistry(auth="bearer") as registry:
        clients(identity_token=IDENTITY_TOKEN).at(registry.host).start_upload("a/b")

    assert [seen.method for seen in registry.seen if "/token" in seen.path] == ["POST"]


def test_an_identity_token_does_not_follow_a_redirect(clients: Clients) -> None:
    with FakeRegistry(auth="bearer", token_moves=True) as registry:
        with pytest.raises(ProtocolFailed, match="307 without a token"):
            clients(identity_token=IDENTITY_TOKEN).at(registry.host).start_upload("a/b")
        assert [seen.storage for seen in registry.seen if "/token" in seen.path] == [True]


def test_a_password_does_not_follow_a_redirect(clients: Clients) -> None:
    with clients.of(auth="bearer", token_moves=True) as (registry, client):
        with pytest.raises(AccessDenied):  # what the anonymous token allows
            client.start_upload("a/b")
        asked = [seen for seen in registry.seen if "/token" in seen.path]

    assert [bool(seen.authorization) for seen in asked[:2]] == [True, False]


def test_the_proxy_of_the_environment_is_used(
    clients: Clients, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        FakeRegistry(tls=certificate.server, location="relative") as registry,
        ConnectProxy(registry.host) as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://bob:p%40ss@{proxy.address}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        client = clients(ca_file=str(certificate.path)).at("registry.test")
        client.ping()
        upload = upload_to(client, len(BLOB))
        upload.write(memoryview(BLOB))
        upload.commit(sha256(BLOB))

    assert registry.blobs["a/b", sha256(BLOB)] == BLOB
    assert set(proxy.asked) == {("registry.test:443", "Basic " + b64(b"bob:p@ss"))}


class ConnectProxy:
    """Tunnels every CONNECT to one place."""

    def __init__(self, destination: str) -> None:
        self.asked: list[tuple[str, str]] = []
        host, _, port = destination.partition(":")
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
                with socket.create_connection((host, int(port))) as onward:
                    self.send_response(200)
                    self.end_headers()
                    back = threading.Thread(target=_copy, args=(onward, self.connection))
                    back.start()
                    _copy(self.connection, onward)
                    back.join()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> ConnectProxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_redirect_to_plain_http_is_refused(clients: Clients) -> None:
    transport = Transport()

    with pytest.raises(ProtocolFailed, match="with a http address"):
        transport.check("http://elsewhere.example/blob", "ghcr.io")
    transport.check("https://elsewhere.example/blob", "ghcr.io")


def test_an_http_location_of_a_tls_registry_is_read_as_https(clients: Clients) -> None:
    client = clients().at("registry.example")

    found = client.resolve(
        "https://registry.example/v2/a/blobs/uploads/",
        "http://registry.example/v2/a/blobs/uploads/1?_state=x%3D",
    )

    assert found == "https://registry.example/v2/a/blobs/uploads/1?_state=x%3D"


@cases("challenge")
def test_challenges_are_parsed(header: str, found: list[dict[str, str]]) -> None:
    assert parse_challenges(header) == [Challenge(**one) for one in found]


def test_secrets_are_in_no_repr_of_the_client(clients: Clients) -> None:
    with clients.of(auth="bearer") as (registry, client):
        client.start_upload("a/b")
        shown = json.dumps(
            [repr(value) for value in (vars(client), vars(client.auth))], default=repr
        )

    assert PASSWORD not in shown
    assert not any(token in shown for token in registry.tokens)
