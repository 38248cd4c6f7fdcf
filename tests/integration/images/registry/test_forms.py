"""Blobs that go out in the form that the registry takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from packager.core.image import Blob, ImageSpec, Inline, Layer, Platform, RuntimeConfig
from packager.core.registry import UNKNOWN_REGISTRY, RegistryTraits
from packager.core.units import MIB
from packager.errors import OutputFailed, PackagerError
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.oci import scratch
from packager.images.registry.clients import RegistryClients
from packager.images.registry.failures import RefusedBySize
from packager.images.registry.sink import RegistrySink
from packager.images.registry.transport import Transport
from packager.images.registry.upload import BlobUpload, UploadInterrupted, put_blob
from packager.images.registry.upload_strategies import DEFAULT_CHUNK, UploadForms
from packager.images.target import parse_registry_target
from packager.images.tee import ATTEMPTS, write_image
from tests.support.doubles.registry import FakeRegistry, sha256

BLOB = os.urandom(5_000_000)
DIGEST = sha256(BLOB)
LONG = BLOB * 3
PIECE = 700_000  # which ranges do not respect

Clients = Callable[[RegistryTraits], RegistryClients]


@pytest.fixture
def knowing() -> Clients:
    def clients(traits: RegistryTraits) -> RegistryClients:
        return RegistryClients(
            find_credentials=lambda host: None,
            traits_of=lambda host: traits,
            transport=Transport(sleep=lambda seconds: None),
        )

    return clients


def send(
    clients: RegistryClients, registry: FakeRegistry, size: int | None = len(BLOB), digest: str = ""
) -> None:
    client = clients.at(registry.host)
    upload = BlobUpload(
        client,
        "a/b",
        client.start_upload("a/b"),
        size,
        digest=digest,
        on_sent=lambda count: None,
        on_commit=lambda digest: None,
    )
    for start in range(0, len(BLOB), PIECE):
        upload.write(memoryview(BLOB)[start : start + PIECE])
    upload.commit(DIGEST)
    assert upload.sent == len(BLOB)


def push(clients: RegistryClients, registry: FakeRegistry, tmp_path: Path) -> RegistrySink:
    sink = RegistrySink(parse_registry_target(f"{registry.host}/a/b:1"), clients=clients)
    layers = (
        Layer(role="weights", blob=Blob((Inline(BLOB),))),
        Layer(role="weights", blob=Blob((Inline(BLOB[::-1]),))),
    )
    image = ImageSpec(
        base=scratch(Platform()),
        layers=layers,
        runtime=RuntimeConfig(),
        created="1970-01-01T00:00:00Z",
    )
    write_image(
        image,
        [sink],
        reader=BlobReader(),
        index=DigestIndex(tmp_path / "index"),
        sleep=lambda seconds: None,
    )
    return sink


def sizes(registry: FakeRegistry, method: str = "PATCH") -> list[int]:
    return [seen.received for seen in registry.requests(method, "/blobs/uploads/")]


# One by one


def test_a_blob_of_unknown_size_is_streamed(knowing: Clients) -> None:
    with FakeRegistry() as registry:
        send(knowing(UNKNOWN_REGISTRY), registry, size=None)

    assert registry.blobs["a/b", DIGEST] == BLOB
    assert sizes(registry) == [len(BLOB)]


@pytest.mark.parametrize("size", [len(BLOB), None], ids=["known size", "unknown size"])
@pytest.mark.parametrize("location", ["absolute", "relative", "other-host"])
def test_ranges_are_of_the_length_that_the_registry_takes(
    knowing: Clients, size: int | None, location: str
) -> None:
    traits = RegistryTraits(name="ranges", forms=("ranges",), chunk_bytes=2_000_000)
    with FakeRegistry(chunks=True, location=location) as registry:
        send(knowing(traits), registry, size)

    assert registry.blobs["a/b", DIGEST] == BLOB
    assert sizes(registry) == [2_000_000, 2_000_000, 1_000_000]


def test_a_blob_that_is_larger_than_a_body_may_be_goes_in_ranges(knowing: Clients) -> None:
    traits = RegistryTraits(name="proxy", body_bytes=4_000_000)
    with FakeRegistry(chunks=True, longest_patch=4_000_000) as registry:
        send(knowing(traits), registry)

    assert sizes(registry) == [4_000_000, 1_000_000]


@pytest.mark.parametrize("size", [len(LONG), None], ids=["known size", "unknown size"])
def test_a_body_that_a_proxy_finds_too_long_goes_in_ranges(
    knowing: Clients, size: int | None
) -> None:
    with FakeRegistry(chunks=True, longest_patch=9_000_000) as registry:
        clients = knowing(UNKNOWN_REGISTRY)
        tries = send_until_taken(clients, registry, LONG, size)
        assert len(send_until_taken(clients, registry, LONG[::-1], size)) == 1

    assert registry.blobs["a/b", sha256(LONG)] == LONG
    assert "takes shorter bodies only (413)" in tries[0]
    assert max(sizes(registry)[2:]) == 8 * MIB


def test_a_registry_whose_limit_is_tiny_says_what_to_do(knowing: Clients) -> None:
    with FakeRegistry(chunks=True, longest_patch=1_000_000) as registry:
        clients = knowing(UNKNOWN_REGISTRY)
        with pytest.raises(RefusedBySize) as refused:
            send_until_taken(clients, registry, LONG, len(LONG))

    assert "client_max_body_size" in refused.value.hint


def send_until_taken(
    clients: RegistryClients, registry: FakeRegistry, blob: bytes, size: int | None
) -> list[str]:
    """Send a blob again for as long as that may help; give what became of each try."""
    said: list[str] = []
    for _ in range(ATTEMPTS):
        client = clients.at(registry.host)
        upload = BlobUpload(
            client, "a/b", client.start_upload("a/b"), size,
            on_sent=lambda count: None, on_commit=lambda digest: None,
        )  # fmt: skip
        try:
            for at in range(0, len(blob), MIB):
                upload.write(memoryview(blob[at : at + MIB]))
            upload.commit(sha256(blob))
            return [*said, ""]
        except UploadInterrupted as error:
            upload.abort()
            said.append(error.message)
    raise AssertionError(said)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"OCI-Chunk-Max-Length": "3000000"}, [3_000_000, 2_000_000]),
        ({"OCI-Chunk-Min-Length": "3000000"}, [len(BLOB)]),
        ({"OCI-Chunk-Max-Length": "junk"}, [len(BLOB)]),
    ],
)
def test_lengths_that_the_registry_states_are_kept_to(
    knowing: Clients, headers: dict[str, str], expected: list[int]
) -> None:
    with FakeRegistry(chunks=True, chunk_lengths=headers) as registry:
        send(knowing(UNKNOWN_REGISTRY), registry)

    assert sizes(registry) == expected


@pytest.mark.parametrize("size", [len(BLOB), None], ids=["known size", "unknown size"])
def test_a_known_digest_lets_the_closing_put_carry_the_blob(
    knowing: Clients, size: int | None
) -> None:
    traits = RegistryTraits(name="put", forms=("put",))
    with FakeRegistry(puts=True) as registry:
        send(knowing(traits), registry, size, digest=DIGEST)

    assert registry.blobs["a/b", DIGEST] == BLOB
    assert (sizes(registry), sizes(registry, "PUT")) == ([], [len(BLOB)])


def test_a_put_whose_answer_is_lost_is_looked_up(knowing: Clients) -> None:
    traits = RegistryTraits(name="put", forms=("put",))
    with FakeRegistry(puts=True, commit_silent=1) as registry:
        send(knowing(traits), registry, digest=DIGEST)

    assert sizes(registry, "PUT") == [len(BLOB)]


def test_a_small_blob_is_stored_once(knowing: Clients) -> None:
    with FakeRegistry() as registry:
        client = knowing(UNKNOWN_REGISTRY).at(registry.host)
        assert put_blob(client, "a/b", b"{}") == put_blob(client, "a/b", b"{}") == sha256(b"{}")

    assert sizes(registry) == [2]


# Found out


@pytest.mark.parametrize("status", [400, 404, 405, 416])
def test_a_registry_that_wants_ranges_gets_them(
    knowing: Clients, tmp_path: Path, status: int
) -> None:
    with FakeRegistry(no_stream=status, chunks=True) as registry:
        sink = push(knowing(UNKNOWN_REGISTRY), registry, tmp_path)

    assert registry.is_complete("a/b", "1")
    assert sink.bytes_sent <= 2 * (2 * len(BLOB)) + 10_000
    streamed = [seen for seen in registry.requests("PATCH") if not seen.received]
    assert len(streamed) <= 2  # of layers that went out together; the configuration knew


@pytest.mark.parametrize("status", [400, 404, 405, 416])
def test_a_registry_without_patch_gets_the_closing_put(
    knowing: Clients, tmp_path: Path, status: int
) -> None:
    with FakeRegistry(no_patch=status, puts=True) as registry:
        push(knowing(UNKNOWN_REGISTRY), registry, tmp_path)

    assert registry.is_complete("a/b", "1")
    assert sum(registry.received.values()) == sum(sizes(registry, "PUT"))


def test_a_registry_that_ends_at_the_first_range_gets_the_closing_put(
    knowing: Clients, tmp_path: Path
) -> None:
    traits = RegistryTraits(name="hasty", forms=("ranges", "put"), chunk_bytes=1_000_000)
    with FakeRegistry(chunks=True, one_range=True, puts=True) as registry:
        push(knowing(traits), registry, tmp_path)

    assert registry.is_complete("a/b", "1")


def test_a_registry_that_takes_only_puts_has_each_layer_sent_once(
    knowing: Clients, tmp_path: Path
) -> None:
    traits = RegistryTraits(name="put", forms=("put",))
    with FakeRegistry(puts=True) as registry:
        sink = push(knowing(traits), registry, tmp_path)

    assert registry.is_complete("a/b", "1")
    assert sink.bytes_sent < 2 * len(BLOB) + 10_000


def test_a_registry_that_takes_nothing_says_so(knowing: Clients, tmp_path: Path) -> None:
    with FakeRegistry(no_patch=405) as registry, pytest.raises(PackagerError, match="405"):
        push(knowing(RegistryTraits(name="x", forms=("stream",))), registry, tmp_path)

    assert registry.manifests == {}


def test_a_body_limit_that_nobody_stated_is_explained(knowing: Clients) -> None:
    with (
        FakeRegistry(longest_patch=1_000_000) as registry,
        pytest.raises(OutputFailed) as failed,
    ):
        send(knowing(UNKNOWN_REGISTRY), registry)

    assert "body_mib" in failed.value.hint


def test_a_lost_upload_is_no_reason_to_change_the_form() -> None:
    forms = UploadForms(UNKNOWN_REGISTRY)

    assert not forms.refuse("stream", 404, " (BLOB_UPLOAD_UNKNOWN)")
    assert forms.choose(1) == "stream"


def test_a_form_that_worked_is_kept() -> None:
    forms = UploadForms(UNKNOWN_REGISTRY)
    forms.accept("stream")

    assert not forms.refuse("stream", 404, "")
    assert forms.choose(1) == "stream"


def test_ranges_are_long_where_nobody_says() -> None:
    assert UploadForms(UNKNOWN_REGISTRY).chunk_bytes() == DEFAULT_CHUNK == 100 * MIB
