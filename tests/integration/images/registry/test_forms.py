"""Blobs that go out in the form that the registry takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import OutputFailed, PackagerError
from packager.core.registry import UNKNOWN_REGISTRY, RegistryTraits
from packager.core.units import MIB
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.registry.clients import RegistryClients
from packager.images.registry.sink import RegistrySink
from packager.images.registry.upload import UploadInterrupted, put_blob
from packager.images.registry.upload_strategies import DEFAULT_CHUNK, UploadForms
from packager.images.tee import ATTEMPTS, write_image
from tests.integration.images.registry.conftest import upload_to
from tests.support.cases import cases
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.made_images import hasty_clients, image_with, layer_with, registry_sink
from tests.support.refusals import raises_code

BLOB = os.urandom(5_000_000)
DIGEST = sha256(BLOB)
LONG = BLOB * 3
PIECE = 700_000  # which ranges do not respect

UNKNOWN = {"name": UNKNOWN_REGISTRY.name}

both_sizes = pytest.mark.parametrize("size_is_known", [True, False], ids=["known", "unknown"])


def knowing(traits: RegistryTraits = UNKNOWN_REGISTRY) -> RegistryClients:
    return hasty_clients(traits_of=lambda host: traits)


def send(
    registry: FakeRegistry,
    traits: RegistryTraits = UNKNOWN_REGISTRY,
    *,
    size_is_known: bool = True,
    digest: str = "",
) -> None:
    size = len(BLOB) if size_is_known else None
    upload = upload_to(knowing(traits).at(registry.host), size, digest=digest)
    for start in range(0, len(BLOB), PIECE):
        upload.write(memoryview(BLOB)[start : start + PIECE])
    upload.commit(DIGEST)
    assert upload.sent == len(BLOB)
    assert registry.blobs["a/b", DIGEST] == BLOB


def push(
    registry: FakeRegistry, tmp_path: Path, traits: RegistryTraits = UNKNOWN_REGISTRY
) -> RegistrySink:
    sink = registry_sink(f"{registry.host}/a/b:1", knowing(traits))
    write_image(
        image_with(layer_with(BLOB), layer_with(BLOB[::-1])),
        [sink],
        reader=BlobReader(),
        index=DigestIndex(tmp_path / "index"),
        sleep=lambda seconds: None,
    )
    assert registry.is_complete("a/b", "1")
    return sink


def sizes(registry: FakeRegistry, method: str = "PATCH") -> list[int]:
    return [seen.received for seen in registry.requests(method, "/blobs/uploads/")]


# One by one


@both_sizes
@cases("forms", quirks={}, traits=UNKNOWN, digest="", patched=[], put=[0])
def test_a_blob_goes_out_in_the_form_that_the_registry_takes(
    size_is_known: bool,
    quirks: dict[str, Any],
    traits: RegistryTraits,
    digest: str,
    patched: list[int],
    put: list[int],
) -> None:
    with FakeRegistry(**quirks) as registry:
        send(registry, traits, size_is_known=size_is_known, digest=digest and DIGEST)

    assert (sizes(registry), sizes(registry, "PUT")) == (patched, put)


def send_until_taken(
    clients: RegistryClients, registry: FakeRegistry, blob: bytes, size: int | None
) -> list[str]:
    """Send a blob again for as long as that may help; give what became of each try."""
    said: list[str] = []
    for _ in range(ATTEMPTS):
        upload = upload_to(clients.at(registry.host), size)
        try:
            for at in range(0, len(blob), MIB):
                upload.write(memoryview(blob[at : at + MIB]))
            upload.commit(sha256(blob))
            return [*said, ""]
        except UploadInterrupted as error:
            upload.abort()
            said.append(error.message)
    raise AssertionError(said)


@both_sizes
def test_a_body_that_a_proxy_finds_too_long_goes_in_ranges(size_is_known: bool) -> None:
    size = len(LONG) if size_is_known else None
    with FakeRegistry(chunks=True, longest_patch=9_000_000) as registry:
        clients = knowing()
        tries = send_until_taken(clients, registry, LONG, size)
        assert len(send_until_taken(clients, registry, LONG[::-1], size)) == 1

    assert registry.blobs["a/b", sha256(LONG)] == LONG
    assert "takes shorter bodies only (413)" in tries[0]
    assert max(sizes(registry)[2:]) == 8 * MIB


def test_a_registry_whose_limit_is_tiny_says_what_to_do() -> None:
    with FakeRegistry(chunks=True, longest_patch=1_000_000) as registry:
        clients = knowing()
        with raises_code("RefusedBySize") as refused:
            send_until_taken(clients, registry, LONG, len(LONG))

    assert "client_max_body_size" in refused.value.hint


PUT = RegistryTraits(name="put", forms=("put",))


def test_a_small_blob_is_stored_once() -> None:
    with FakeRegistry() as registry:
        client = knowing().at(registry.host)
        assert put_blob(client, "a/b", b"{}") == put_blob(client, "a/b", b"{}") == sha256(b"{}")

    assert sizes(registry, "PUT") == [2]


# Found out


@pytest.mark.parametrize("status", [400, 404, 405, 416])
def test_a_registry_that_wants_ranges_gets_them(tmp_path: Path, status: int) -> None:
    with FakeRegistry(no_stream=status, chunks=True) as registry:
        sink = push(registry, tmp_path)

    assert sink.bytes_sent <= 2 * (2 * len(BLOB)) + 10_000
    streamed = [seen for seen in registry.requests("PATCH") if not seen.received]
    assert len(streamed) <= 2  # of layers that went out together; the configuration knew


@pytest.mark.parametrize("status", [400, 404, 405, 416])
def test_a_registry_without_patch_gets_the_closing_put(tmp_path: Path, status: int) -> None:
    with FakeRegistry(no_patch=status) as registry:
        push(registry, tmp_path)

    assert sum(registry.received.values()) == sum(sizes(registry, "PUT"))


def test_a_registry_that_ends_at_the_first_range_gets_the_closing_put(tmp_path: Path) -> None:
    traits = RegistryTraits(name="hasty", forms=("ranges", "put"), chunk_bytes=1_000_000)
    with FakeRegistry(chunks=True, one_range=True) as registry:
        push(registry, tmp_path, traits)


def test_a_registry_that_takes_only_puts_has_each_layer_sent_once(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        assert push(registry, tmp_path, PUT).bytes_sent < 2 * len(BLOB) + 10_000


def test_a_registry_that_takes_nothing_says_so(tmp_path: Path) -> None:
    with FakeRegistry(no_patch=405) as registry, pytest.raises(PackagerError, match="405"):
        push(registry, tmp_path, RegistryTraits(name="x", forms=("stream",)))

    assert registry.manifests == {}


def test_a_body_limit_that_nobody_stated_is_explained() -> None:
    with FakeRegistry(longest_patch=1_000_000) as registry, pytest.raises(OutputFailed) as failed:
        send(registry)

    assert "body_mib" in failed.value.hint


@pytest.mark.parametrize("accepted", [False, True], ids=["a lost upload", "a form that worked"])
def test_what_is_no_fault_of_the_form_does_not_change_it(accepted: bool) -> None:
    forms = UploadForms(UNKNOWN_REGISTRY)
    if accepted:
        forms.accept("stream")

    assert not forms.refuse("stream", 404, "" if accepted else " (BLOB_UPLOAD_UNKNOWN)")
    assert forms.choose(1) == "stream"


def test_ranges_are_long_where_nobody_says() -> None:
    assert UploadForms(UNKNOWN_REGISTRY).chunk_bytes() == DEFAULT_CHUNK == 100 * MIB
