"""Registries that answer nonsense: each document and header ends in a typed refusal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from packager.core.image import Platform
from packager.errors import AccessDenied, PackagerError, ProtocolFailed, Unavailable
from packager.images.oci import sha256
from packager.images.registry.auth import parse_challenges
from packager.images.registry.base import RegistryBase, read_documents
from packager.images.registry.client import RegistryClient
from packager.images.registry.clients import RegistryClients
from packager.images.registry.failures import error_codes
from packager.images.registry.referrers import referrers
from packager.images.registry.transport import Transport
from packager.images.registry.upload import put_blob
from packager.images.target import parse_registry_target
from tests.integration.images.registry.conftest import Clients
from tests.support.doubles.hostile import HostileServer, Reply, Request, endless, reply

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
DIGEST = "sha256:" + "a" * 64
AMD64 = {"os": "linux", "architecture": "amd64"}
OK = b"HTTP/1.1 200 OK\r\n"
CANARY = "canary-a1b2c3d4"
REFUSED = (ProtocolFailed, Unavailable)
DEEP = b"[" * 100_000


def at(server: HostileServer, user: str = "") -> RegistryClient:
    clients = Clients()
    return clients(user=user, password="pass-canary").at(server.host)


def image_with(
    config: object, manifest: dict[str, object] | None = None
) -> Callable[[Request], Reply]:
    """Serve an image with this configuration, and these fields in its manifest."""
    data = config if isinstance(config, bytes) else json.dumps(config).encode()
    document: dict[str, object] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": "a/b", "digest": sha256(data), "size": len(data)},
        "layers": [{"mediaType": "a/b", "digest": DIGEST, "size": 1}],
        **(manifest or {}),
    }

    def answer(request: Request) -> Reply:
        if "/manifests/" in request.path:
            return reply(json.dumps(document).encode(), Content_Type=MANIFEST)
        return reply(data)

    return answer


def base_of(answer: Callable[[Request], Reply]) -> object:
    with HostileServer(answer) as server:
        clients = RegistryClients(transport=Transport(sleep=lambda seconds: None))
        return RegistryBase(clients=clients).facts(
            parse_registry_target(f"{server.host}/a/b:1"), Platform()
        )


GOOD = {"rootfs": {"type": "layers", "diff_ids": [DIGEST]}, "os": "linux", "architecture": "amd64"}


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({**GOOD, "rootfs": ["diff_ids"]}, id="rootfs-list"),
        pytest.param({**GOOD, "rootfs": {"diff_ids": 5}}, id="diff_ids-number"),
        pytest.param({**GOOD, "rootfs": {"diff_ids": [5]}}, id="diff_id-number"),
        pytest.param({**GOOD, "rootfs": {"diff_ids": ["sha256:../../x"]}}, id="diff_id-path"),
        pytest.param({**GOOD, "config": ["Env"]}, id="config-list"),
        pytest.param({**GOOD, "config": {"Env": "A=1"}}, id="env-text"),
        pytest.param({**GOOD, "config": {"Env": [{}]}}, id="env-entry-object"),
        pytest.param({**GOOD, "config": {"Labels": ["a"]}}, id="labels-list"),
        pytest.param({**GOOD, "config": {"Labels": {"a": 1}}}, id="label-number"),
        pytest.param({**GOOD, "config": {"ExposedPorts": ["80"]}}, id="ports-list"),
        pytest.param({**GOOD, "config": {"ExposedPorts": {"80": 1}}}, id="port-number"),
        pytest.param({**GOOD, "config": {"Entrypoint": "sh"}}, id="entrypoint-text"),
        pytest.param({**GOOD, "history": {"created_by": "x"}}, id="history-object"),
        pytest.param({**GOOD, "history": ["x"]}, id="history-entry-text"),
        pytest.param({**GOOD, "history": [{"empty_layer": "no"}]}, id="empty_layer-text"),
        pytest.param({**GOOD, "os": ["linux"]}, id="os-list"),
        pytest.param({**GOOD, "architecture": 64}, id="architecture-number"),
        pytest.param(b'{"rootfs":{"diff_ids":[1e999]}}', id="infinity"),
        pytest.param(DEEP, id="deep"),
        pytest.param(b'{"os":"linux","os":"windows"}', id="twice"),
        pytest.param(b'{"a":"\\ud800"}', id="half-surrogate"),
        pytest.param(b"\xff\xfe", id="no-utf8"),
        pytest.param(b"[]", id="list"),
    ],
)
def test_a_configuration_with_a_field_of_a_wrong_type_is_refused(config: object) -> None:
    with pytest.raises(ProtocolFailed):
        base_of(image_with(config))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"layers": {}}, id="layers-object"),
        pytest.param({"layers": [5]}, id="layer-number"),
        pytest.param({"layers": [{"mediaType": "a/b", "digest": DIGEST}]}, id="no-size"),
        pytest.param(
            {"layers": [{"mediaType": "a/b", "digest": DIGEST, "size": -1}]}, id="negative"
        ),
        pytest.param(
            {"layers": [{"mediaType": "a/b", "digest": DIGEST, "size": True}]}, id="size-true"
        ),
        pytest.param(
            {"layers": [{"mediaType": "a/b", "digest": DIGEST, "size": 10**30}]}, id="size-huge"
        ),
        pytest.param(
            {"layers": [{"mediaType": "a/b", "digest": DIGEST, "size": 1.5}]}, id="size-fraction"
        ),
        pytest.param({"layers": [{"mediaType": 5, "digest": DIGEST, "size": 1}]}, id="media-type"),
        pytest.param({"config": []}, id="config-list"),
        pytest.param({"config": {"mediaType": "a/b", "size": 2}}, id="config-without-digest"),
        pytest.param(
            {"config": {"mediaType": "a/b", "digest": "sha256:/dev/zero", "size": 2}},
            id="config-digest-device",
        ),
        pytest.param(
            {"config": {"mediaType": "a/b", "digest": "sha256:" + "A" * 64, "size": 2}},
            id="config-digest-upper-case",
        ),
        pytest.param({"schemaVersion": 1}, id="schema-1"),
        pytest.param({"schemaVersion": "2"}, id="schema-text"),
        pytest.param({"manifests": []}, id="index-too"),
    ],
)
def test_a_manifest_with_a_field_of_a_wrong_type_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ProtocolFailed):
        base_of(image_with(GOOD, fields))


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param({"manifests": 5}, id="entries-number"),
        pytest.param({"manifests": [5]}, id="entry-number"),
        pytest.param({"manifests": [{"platform": "linux/amd64"}]}, id="platform-text"),
        pytest.param({"manifests": [{"platform": {"os": {}}}]}, id="os-object"),
        pytest.param({"manifests": [{"platform": AMD64}]}, id="no-digest"),
        pytest.param({"manifests": [{"annotations": [1]}]}, id="annotations-list"),
    ],
)
def test_an_index_with_a_field_of_a_wrong_type_is_refused(entries: dict[str, object]) -> None:
    document = json.dumps({"schemaVersion": 2, **entries}).encode()

    with pytest.raises(ProtocolFailed):
        base_of(lambda request: reply(document, Content_Type=INDEX))


def test_a_configuration_longer_than_its_descriptor_says_is_not_read_on() -> None:
    config = b" " * 3_000_000 + json.dumps(GOOD).encode()
    told = image_with(
        config, {"config": {"mediaType": "a/b", "digest": sha256(config), "size": 100}}
    )

    with pytest.raises(ProtocolFailed, match="more than 100 bytes"):
        base_of(told)


def test_a_manifest_that_does_not_end_is_not_read_on() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\n"
    with HostileServer(lambda request: endless(head, b" " * 65536)) as server:
        with pytest.raises(ProtocolFailed, match="more than 4194304 bytes"):
            at(server).get_manifest("a/b", "1")

        assert server.sent < 16 * 1024 * 1024


def test_a_manifest_that_drips_steadily_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packager.images.registry.transport.DOCUMENT_TIMEOUT_S", -1.0)

    server = HostileServer(lambda request: reply(b"{}"))
    with server, pytest.raises(Unavailable, match="a document was not there after"):
        at(server).get_manifest("a/b", "1")


BLANKS = " " * 60_000


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(f"Bearer{BLANKS}!", id="blanks"),
        pytest.param("Bearer" + " " * 16_000 + "!", id="blanks-within-the-limit"),
        pytest.param("a " * 8_000, id="schemes"),
        pytest.param("a, " * 5_000, id="commas"),
        pytest.param('Bearer realm="' + "\\" * 15_000, id="escapes"),
        pytest.param('a b="' * 3_000, id="quotes"),
        pytest.param("a/" * 8_000 + "!", id="token68"),
        pytest.param("x" + "=" * 15_000 + "!", id="equals"),
    ],
)
def test_a_challenge_takes_time_in_proportion_to_its_length(header: str) -> None:
    started = time.process_time()

    parse_challenges(header)

    assert time.process_time() - started < 5.0


def test_a_registry_whose_challenge_is_all_blanks_is_refused_at_once() -> None:
    def answer(request: Request) -> Reply:
        return reply(b"", 401, WWW_Authenticate=f"Bearer{BLANKS}!")

    with HostileServer(answer) as server:
        started = time.process_time()
        with pytest.raises(AccessDenied):
            at(server).get_manifest("a/b", "1")

        assert time.process_time() - started < 5.0


def test_the_link_to_the_next_page_is_found_in_linear_time() -> None:
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}).encode()

    def answer(request: Request) -> Reply:
        return reply(index, Content_Type=INDEX, Link="<" * 60_000)

    with HostileServer(answer) as server:
        started = time.process_time()
        assert referrers(at(server), "a/b", DIGEST) == ()

        assert time.process_time() - started < 5.0


def told_token(body: bytes) -> Callable[[Request], Reply]:
    """Ask for a token of our own token service, which gives this."""

    def answer(request: Request) -> Reply:
        if request.path.startswith("/token"):
            return reply(body)
        host = request.header("Host")
        return reply(b"", 401, WWW_Authenticate=f'Bearer realm="http://{host}/token"')

    return answer


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(json.dumps({"token": f"{CANARY}\nX: y"}).encode(), id="newline"),
        pytest.param(json.dumps({"token": f"{CANARY}\u4e2d"}).encode(), id="not-latin-1"),
        pytest.param(json.dumps({"token": f"{CANARY} x"}).encode(), id="blank"),
        pytest.param(json.dumps({"token": CANARY * 10_000}).encode(), id="long"),
        pytest.param(json.dumps({"token": [CANARY]}).encode(), id="list"),
        pytest.param(json.dumps({"token": {"a": CANARY}}).encode(), id="object"),
        pytest.param(json.dumps({"token": True, "access_token": CANARY}).encode(), id="true"),
        pytest.param(f'{{"token":"{CANARY}","token":"x"}}'.encode(), id="twice"),
        pytest.param(f'{{"token":"{CANARY}'.encode(), id="cut"),
        pytest.param(f'["{CANARY}"]'.encode(), id="no-object"),
        pytest.param(DEEP, id="deep"),
    ],
)
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(body: bytes) -> None:
    with HostileServer(told_token(body)) as server, pytest.raises(ProtocolFailed) as caught:
        at(server).get_manifest("a/b", "1")

    assert CANARY not in said(caught.value)


@pytest.mark.parametrize(
    "lifetime", ['"x"', "-5", "true", "[]", "1e300", "null", "0"], ids=lambda text: f"is-{text}"
)
def test_a_lifetime_that_means_nothing_leaves_the_token_usable(lifetime: str) -> None:
    def answer(request: Request) -> Reply:
        if request.path.startswith("/token"):
            return reply(f'{{"token":"good","expires_in":{lifetime}}}'.encode())
        if request.header("Authorization") == "Bearer good":
            return reply(b"{}", Content_Type=MANIFEST)
        host = request.header("Host")
        return reply(b"", 401, WWW_Authenticate=f'Bearer realm="http://{host}/token"')

    with HostileServer(answer) as server:
        assert at(server).get_manifest("a/b", "1").data == b"{}"


ADDRESSES = [
    pytest.param("http://127.0.0.1:99999999/x", id="port-too-high"),
    pytest.param("http://127.0.0.1:x/", id="port-no-number"),
    pytest.param("http://[::1", id="bracket-open"),
    pytest.param("http://127.0.0.1/a b", id="blank"),
    pytest.param("http://127.0.0.1/\xe9", id="latin-1"),
    pytest.param("http://127.0.0.1/\x7f", id="control"),
    pytest.param("file:///etc/passwd", id="file"),
    pytest.param("http://127.0.0.1/" + "a" * 20_000, id="long"),
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_realm_that_cannot_be_asked_is_refused(address: str) -> None:
    def answer(request: Request) -> Reply:
        return reply(b"", 401, WWW_Authenticate=f'Bearer realm="{address}"')

    with HostileServer(answer) as server, pytest.raises((ProtocolFailed, AccessDenied)):
        at(server, user="alice").get_manifest("a/b", "1")


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(("method", "status"), [("GET", 302), ("POST", 202)])
def test_a_location_that_cannot_be_asked_is_refused(address: str, method: str, status: int) -> None:
    with HostileServer(lambda request: reply(b"", status, Location=address)) as server:
        client = at(server)
        with pytest.raises((ProtocolFailed, Unavailable)):
            if method == "GET":
                client.get_manifest("a/b", "1")
            else:
                client.start_upload("a/b")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(DEEP, id="deep"),
        pytest.param(b'{"errors":{"code":"X"}}', id="errors-object"),
        pytest.param(b'{"errors":[5]}', id="error-number"),
        pytest.param(b'{"errors":[{"code":["DENIED"]}]}', id="code-list"),
        pytest.param(b'{"errors":[{"code":"a b"}]}', id="code-with-a-blank"),
    ],
)
def test_an_error_document_that_means_nothing_says_nothing(body: bytes) -> None:
    assert error_codes(body) == ""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(DEEP, id="deep"),
        pytest.param(b"5", id="number"),
        pytest.param(b'{"tags":5}', id="tags-number"),
        pytest.param(b'{"tags":{"a":1}}', id="tags-object"),
    ],
)
def test_a_list_of_tags_of_a_wrong_type_is_refused(body: bytes) -> None:
    with HostileServer(lambda request: reply(body)) as server, pytest.raises(ProtocolFailed):
        at(server).list_tags("a/b")


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(5, id="number"),
        pytest.param({"mediaType": "a/b", "digest": "sha256:../x", "size": 1}, id="digest-path"),
        pytest.param({"mediaType": "a/b", "digest": DIGEST, "size": "1"}, id="size-text"),
        pytest.param({"mediaType": [], "digest": DIGEST, "size": 1}, id="media-type-list"),
    ],
)
def test_a_referrer_of_a_wrong_type_is_left_out(entry: object) -> None:
    document = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()

    with HostileServer(lambda request: reply(document, Content_Type=INDEX)) as server:
        assert referrers(at(server), "a/b", DIGEST) == ()


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}", id="length"),
        pytest.param(OK + b"Content-Length: -5\r\n\r\n{}", id="negative-length"),
        pytest.param(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", id="lengths"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n{}", id="chunk"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}", id="no-chunk"),
        pytest.param(b"HTTP/1.1 " + b"9" * 5000 + b" OK\r\n\r\n", id="status"),
        pytest.param(b"HTTP/1.1 20 OK\r\n\r\n", id="status-20"),
        pytest.param(b"\x00\xff\r\n\r\n", id="no-http"),
        pytest.param(b"", id="nothing"),
        pytest.param(OK + b"A: b\r\n" * 500 + b"\r\n{}", id="headers"),
        pytest.param(OK + b"A: " + b"b" * 100_000 + b"\r\n\r\n{}", id="long-header"),
        pytest.param(OK + b": b\r\n\r\n{}", id="header-without-name"),
    ],
)
def test_a_head_that_breaks_http_is_refused(head: bytes) -> None:
    with HostileServer(lambda request: head) as server, pytest.raises(REFUSED):
        clients = RegistryClients(transport=Transport(sleep=lambda seconds: None))
        read_documents(parse_registry_target(f"{server.host}/a/b:1"), Platform(), clients)


@pytest.mark.parametrize(
    "length",
    ["9" * 5000, "-1", "x", "1e3", "\xb2"],
    ids=["digits", "negative", "word", "power", "superscript"],
)
def test_a_blob_of_no_stated_length_is_refused(length: str) -> None:
    told = reply(b"", Content_Length=length)
    with HostileServer(lambda request: told) as server, pytest.raises(REFUSED):
        at(server).head_blob("a/b", DIGEST)


@pytest.mark.parametrize(
    "text", ["9" * 5000, "Mon, 99 Jan 0000 99:99:99 -0000", "(" * 60_000, "\xb2"]
)
def test_a_wish_to_wait_that_cannot_be_read_is_none(text: str) -> None:
    answers = iter([reply(b"", 429, Retry_After=text), reply(b"{}", Content_Type=MANIFEST)])
    with HostileServer(lambda request: next(answers)) as server:
        assert at(server).get_manifest("a/b", "1").data == b"{}"


def told_401(request: Request) -> Reply:
    return reply(b"", 401, WWW_Authenticate="Basic realm=x")


def told_403(request: Request) -> Reply:
    sent = request.header("Authorization")
    return reply(json.dumps({"errors": [{"code": sent}]}).encode(), 403, X_Echo=sent)


def echoing(status: int) -> Callable[[Request], Reply]:
    """Ask for the password, then throw it back in every part of an answer."""

    def answer(request: Request) -> Reply:
        sent = request.header("Authorization")
        if not sent:
            return told_401(request)
        return reply(sent.encode(), status, Location=f"http://{sent}/", WWW_Authenticate=sent)

    return answer


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 413, 500, 503])
def test_no_refusal_repeats_a_password_that_the_registry_sends_back(status: int) -> None:
    secrets = ("pass-canary", "cGFzcy1jYW5hcnk", "YWxpY2U6cGFzcy1jYW5hcnk=")
    with HostileServer(echoing(status)) as server:
        client = at(server, user="alice")
        calls: list[Callable[[], object]] = [
            lambda: client.get_manifest("a/b", DIGEST),
            lambda: client.head_blob("a/b", DIGEST),
            lambda: client.get_blob("a/b", DIGEST, 100),
            lambda: client.list_tags("a/b"),
            lambda: client.start_upload("a/b"),
            lambda: client.put_manifest("a/b", "1", b"{}", MANIFEST),
            lambda: client.list_referrers("a/b", DIGEST),
            client.ping,
        ]
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
    def answer(request: Request) -> Reply:
        host, sent = request.header("Host"), request.header("Authorization")
        if request.path.startswith("/token"):
            return reply(json.dumps({"token": CANARY}).encode())
        if not sent:
            return reply(b"", 401, WWW_Authenticate=f'Bearer realm="http://{host}/token"')
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
