"""Registries that answer nonsense: each document and header ends in a typed refusal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from packager.core.errors import AccessDenied, PackagerError, ProtocolFailed, Unavailable
from packager.core.image import Platform
from packager.core.remote.refusals import read_error
from packager.images.oci import sha256
from packager.images.registry.auth import parse_challenges
from packager.images.registry.base import RegistryBase, read_documents
from packager.images.registry.client import UNKNOWN_SIZE, RegistryClient
from packager.images.registry.referrers import referrers
from packager.images.registry.upload import put_blob
from packager.images.target import parse_registry_target
from tests.integration.images.registry.conftest import Clients
from tests.support.cases import cases, read_tables
from tests.support.doubles.hostile import HostileServer, Reply, Request, endless, reply
from tests.support.made_images import hasty_clients

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
DIGEST = "sha256:" + "a" * 64
CANARY = "canary-a1b2c3d4"
REFUSED = (ProtocolFailed, Unavailable)
GOOD = {"rootfs": {"type": "layers", "diff_ids": [DIGEST]}, "os": "linux", "architecture": "amd64"}
LAYER = {"mediaType": "a/b", "digest": DIGEST, "size": 1}

Answer = Callable[[Request], Reply]


def at(server: HostileServer, user: str = "") -> RegistryClient:
    return Clients()(user=user, password="pass-canary").at(server.host)


@contextmanager
def asked(answer: Answer, user: str = "") -> Iterator[RegistryClient]:
    """A client of a registry that answers so."""
    with HostileServer(answer) as server:
        yield at(server, user)


@contextmanager
def refused(
    answer: Answer, *errors: type[PackagerError], user: str = "", match: str | None = None
) -> Iterator[RegistryClient]:
    """A client of a registry that answers so, whose call is refused with one of these errors."""
    with asked(answer, user) as client, pytest.raises(errors, match=match):
        yield client


@contextmanager
def quick() -> Iterator[None]:
    """Fail what takes more time than its input is long."""
    started = time.process_time()
    yield
    assert time.process_time() - started < 5.0


def image_with(config: bytes, manifest: dict[str, Any] | None = None) -> Answer:
    """Serve an image with this configuration, and these fields in its manifest."""
    described: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": "a/b", "digest": sha256(config), "size": len(config)},
        "layers": [LAYER],
        **(manifest or {}),
    }

    def answer(request: Request) -> Reply:
        if "/manifests/" in request.path:
            return reply(json.dumps(described).encode(), Content_Type=MANIFEST)
        return reply(config)

    return answer


def base_of(answer: Answer) -> object:
    with HostileServer(answer) as server:
        target = parse_registry_target(f"{server.host}/a/b:1")
        return RegistryBase(clients=hasty_clients()).facts(target, Platform())


@cases("configuration", text="")
def test_a_configuration_of_wrong_types_is_refused(changes: str | None, text: bytes) -> None:
    config = json.dumps({**GOOD, **json.loads(changes)}).encode() if changes else text

    with pytest.raises(ProtocolFailed):
        base_of(image_with(config))


@cases("manifest")
def test_a_manifest_of_wrong_types_is_refused(changes: str | None, layer: str | None) -> None:
    fields = json.loads(changes) if changes else {"layers": [{**LAYER, **json.loads(layer or "")}]}

    with pytest.raises(ProtocolFailed):
        base_of(image_with(json.dumps(GOOD).encode(), fields))


@cases("index")
def test_an_index_of_wrong_types_is_refused(changes: str) -> None:
    index = json.dumps({"schemaVersion": 2, **json.loads(changes)}).encode()

    with pytest.raises(ProtocolFailed):
        base_of(lambda request: reply(index, Content_Type=INDEX))


def test_a_configuration_longer_than_its_descriptor_says_is_not_read_on() -> None:
    config = b" " * 3_000_000 + json.dumps(GOOD).encode()
    told = {"config": {"mediaType": "a/b", "digest": sha256(config), "size": 100}}

    with pytest.raises(ProtocolFailed, match="more than 100 bytes"):
        base_of(image_with(config, told))


def test_a_manifest_that_does_not_end_is_not_read_on() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\n"
    with HostileServer(lambda request: endless(head, b" " * 65536)) as server:
        with pytest.raises(ProtocolFailed, match="more than 4194304 bytes"):
            at(server).get_manifest("a/b", "1")

        assert server.sent < 16 * 1024 * 1024


def test_a_manifest_that_drips_steadily_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packager.images.registry.transport.DOCUMENT_TIMEOUT_S", -1.0)

    late = "a document was not there after"
    with refused(lambda request: reply(b"{}"), Unavailable, match=late) as client:
        client.get_manifest("a/b", "1")


@cases("challenge")
def test_a_challenge_takes_time_in_proportion_to_its_length(text: str) -> None:
    with quick():
        parse_challenges(text)


def test_a_registry_whose_challenge_is_all_blanks_is_refused_at_once() -> None:
    blanks = f"Bearer{' ' * 60_000}!"

    def answer(request: Request) -> Reply:
        return reply(b"", 401, WWW_Authenticate=blanks)

    with quick(), refused(answer, AccessDenied) as client:
        client.get_manifest("a/b", "1")


def test_the_link_to_the_next_page_is_found_in_linear_time() -> None:
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}).encode()
    link = "<" * 60_000
    with asked(lambda request: reply(index, Content_Type=INDEX, Link=link)) as client, quick():
        assert referrers(client, "a/b", DIGEST) == ()


def told_token(body: bytes) -> Answer:
    """Ask for a token of our own token service, which gives this; one that says `good` is taken."""

    def answer(request: Request) -> Reply:
        if request.path.startswith("/token"):
            return reply(body)
        if request.header("Authorization") == "Bearer good":
            return reply(b"{}", Content_Type=MANIFEST)
        host = request.header("Host")
        return reply(b"", 401, WWW_Authenticate=f'Bearer realm="http://{host}/token"')

    return answer


@cases("token")
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(text: bytes) -> None:
    with asked(told_token(text)) as client, pytest.raises(ProtocolFailed) as caught:
        client.get_manifest("a/b", "1")

    assert CANARY not in said(caught.value)


@cases("lifetime")
def test_a_lifetime_that_means_nothing_leaves_the_token_usable(text: str) -> None:
    with asked(told_token(f'{{"token":"good","expires_in":{text}}}'.encode())) as client:
        assert client.get_manifest("a/b", "1").data == b"{}"


@cases("address")
def test_a_realm_that_cannot_be_asked_is_refused(text: str) -> None:
    realm = f'Bearer realm="{text}"'

    def answer(request: Request) -> Reply:
        return reply(b"", 401, WWW_Authenticate=realm)

    with refused(answer, ProtocolFailed, AccessDenied, user="alice") as client:
        client.get_manifest("a/b", "1")


@cases("address")
@pytest.mark.parametrize(("method", "status"), [("GET", 302), ("POST", 202)])
def test_a_location_that_cannot_be_asked_is_refused(text: str, method: str, status: int) -> None:
    with refused(lambda request: reply(b"", status, Location=text), *REFUSED) as client:
        if method == "GET":
            client.get_manifest("a/b", "1")
        else:
            client.start_upload("a/b")


@cases("error")
def test_an_error_document_that_means_nothing_says_nothing(text: bytes) -> None:
    assert read_error(text).shown == ""


@cases("tags")
def test_a_list_of_tags_of_a_wrong_type_is_refused(text: bytes) -> None:
    with refused(lambda request: reply(text), ProtocolFailed) as client:
        client.list_tags("a/b")


@cases("referrer")
def test_a_referrer_of_a_wrong_type_is_left_out(entry: str) -> None:
    index = json.dumps({"schemaVersion": 2, "manifests": [json.loads(entry)]}).encode()

    with asked(lambda request: reply(index, Content_Type=INDEX)) as client:
        assert referrers(client, "a/b", DIGEST) == ()


@cases("head")
def test_a_head_that_breaks_http_is_refused(text: bytes) -> None:
    with HostileServer(lambda request: text) as server, pytest.raises(REFUSED):
        read_documents(parse_registry_target(f"{server.host}/a/b:1"), Platform(), hasty_clients())


@cases("a_length_that_cannot_be_read_is_none")
def test_a_length_that_cannot_be_read_is_none(length: str) -> None:
    with asked(lambda request: reply(b"", Content_Length=length)) as client:
        assert client.head_blob("a/b", DIGEST) == UNKNOWN_SIZE


@cases("a_wish_to_wait_that_cannot_be_read_is_none")
def test_a_wish_to_wait_that_cannot_be_read_is_none(text: str) -> None:
    answers = iter([reply(b"", 429, Retry_After=text), reply(b"{}", Content_Type=MANIFEST)])
    with asked(lambda request: next(answers)) as client:
        assert client.get_manifest("a/b", "1").data == b"{}"


def echoing(status: int) -> Answer:
    """Ask for the password, then throw it back in every part of an answer."""

    def answer(request: Request) -> Reply:
        sent = request.header("Authorization")
        if not sent:
            return reply(b"", 401, WWW_Authenticate="Basic realm=x")
        return reply(sent.encode(), status, Location=f"http://{sent}/", WWW_Authenticate=sent)

    return answer


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 413, 500, 503])
def test_no_refusal_repeats_a_password_that_the_registry_sends_back(status: int) -> None:
    secrets = ("pass-canary", "cGFzcy1jYW5hcnk", "YWxpY2U6cGFzcy1jYW5hcnk=")
    with asked(echoing(status), user="alice") as client:
        calls: list[Callable[[], object]] = [
            partial(getattr(client, name), *arguments)
            for name, *arguments in read_tables(__file__)["calls"]
        ]
        calls.append(lambda: client.put_manifest("a/b", "1", b"{}", MANIFEST))
        messages = [message for call in calls if (message := refusal_of(call))]

    assert messages
    assert not [text for text in messages for secret in secrets if secret in text]


def refusal_of(call: Callable[[], object]) -> str:
    try:
        call()
    except PackagerError as error:
        return said(error)
    return ""


def said(error: BaseException) -> str:
    """All that a user, or a log with tracebacks, could see of it."""
    parts: list[str] = []
    found: BaseException | None = error
    while found is not None:
        parts += [repr(found), str(found), getattr(found, "hint", "")]
        found = found.__cause__
    return " ".join(parts)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 500])
def test_no_refusal_of_an_upload_repeats_a_token_that_the_registry_sends_back(status: int) -> None:
    asking = told_token(json.dumps({"token": CANARY}).encode())

    def answer(request: Request) -> Reply:
        host, sent = request.header("Host"), request.header("Authorization")
        if request.path.startswith("/token") or not sent:
            return asking(request)
        if request.method == "POST":
            return reply(b"", 202, Location=f"http://{host}/v2/a/b/blobs/uploads/1")
        if request.method in ("HEAD", "GET"):
            return reply(b"", 404)
        return reply(sent.encode(), status, Location=f"http://{host}/{sent}", Range=sent)

    with HostileServer(answer) as server:
        message = refusal_of(lambda: put_blob(at(server), "a/b", b"some bytes"))

        assert any(CANARY in request.head for request in server.requests)
    assert message
    assert CANARY not in message
