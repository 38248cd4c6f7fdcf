"""Attaching to an image, at registries that keep the lists and at those that do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import pytest

from packager.core.errors import ProtocolFailed
from packager.core.image import MEDIA_INDEX, MEDIA_MANIFEST
from packager.images.registry.client import RegistryClient
from packager.images.registry.clients import RegistryClients
from packager.images.registry.referrers import Referrer, attach, referrers
from packager.images.registry.upload import put_blob
from tests.integration.images.registry.conftest import Clients
from tests.support.doubles.registry import FakeRegistry, sha256

EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
SBOM, SIGNATURE = "application/vnd.cyclonedx+json", "application/vnd.example.signature"


def descriptor(data: bytes, media_type: str) -> dict[str, object]:
    return {"mediaType": media_type, "digest": sha256(data), "size": len(data)}


def manifest(kind: str, subject: bytes | None = None, note: str = "") -> bytes:
    document = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "artifactType": kind,
        "config": descriptor(EMPTY, EMPTY_TYPE),
        "layers": [descriptor(EMPTY, EMPTY_TYPE)],
    }
    if subject is not None:
        document["subject"] = descriptor(subject, MEDIA_MANIFEST)
    if note:
        document["annotations"] = {"note": note}
    return json.dumps(document).encode()


IMAGE = manifest("application/vnd.example.image")
TAG = sha256(IMAGE).replace(":", "-")


def stored(client: RegistryClient) -> RegistryClient:
    """With an image in `a/b`, to which something can be attached."""
    put_blob(client, "a/b", EMPTY)
    client.put_manifest("a/b", "1", IMAGE, MEDIA_MANIFEST)
    return client


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as made:
        yield made


@pytest.fixture
def client(clients: Clients, fake: FakeRegistry) -> RegistryClient:
    return stored(clients().at(fake.host))


@pytest.fixture(params=[True, False], ids=["with the API", "without it"])
def listing(request: pytest.FixtureRequest, fake: FakeRegistry) -> bool:
    """Whether the registry keeps lists of what is attached."""
    fake.quirks.referrers = request.param
    return bool(request.param)


def found(client: RegistryClient, of_type: str = "") -> tuple[Referrer, ...]:
    return referrers(client, "a/b", sha256(IMAGE), *filter(None, [of_type]))


def test_what_is_attached_is_found(
    client: RegistryClient, fake: FakeRegistry, listing: bool
) -> None:
    assert found(client) == ()

    (sbom,) = attach(client, "a/b", manifest(SBOM, IMAGE, note="ours"))
    (signature,) = attach(client, "a/b", manifest(SIGNATURE, IMAGE))

    assert {one.digest for one in found(client)} == {sbom.digest, signature.digest}
    assert [one.digest for one in found(client, SBOM)] == [sbom.digest]
    assert (sbom.artifact_type, sbom.annotations) == (SBOM, {"note": "ours"})
    assert (("a/b", TAG) in fake.manifests) is not listing


def test_attaching_twice_changes_nothing(
    client: RegistryClient, fake: FakeRegistry, listing: bool
) -> None:
    first, second = (attach(client, "a/b", manifest(SBOM, IMAGE)) for _ in range(2))

    assert first == second
    assert len(found(client)) == 1
    assert len(fake.requests("PUT", f"/manifests/{TAG}")) == (0 if listing else 1)


def test_the_index_under_the_tag_is_the_one_of_the_specification(
    client: RegistryClient, fake: FakeRegistry
) -> None:
    attach(client, "a/b", manifest(SBOM, IMAGE, note="ours"))

    media_type, data = fake.manifests["a/b", TAG]
    assert media_type == MEDIA_INDEX
    (entry,) = json.loads(data)["manifests"]
    assert entry["artifactType"] == SBOM
    assert entry["annotations"] == {"note": "ours"}


class _Overwritten:
    """A client between whose writing and looking somebody else writes the tag, `times` times."""

    def __init__(self, client: RegistryClient, registry: FakeRegistry, times: int) -> None:
        self._client, self._registry, self._times = client, registry, times

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    def put_manifest(self, repository: str, pointer: str, data: bytes, media_type: str) -> str:
        listed = self._client.put_manifest(repository, pointer, data, media_type)
        if pointer == TAG and self._times:
            self._times -= 1
            theirs = manifest(SIGNATURE, IMAGE)
            self._registry.put_manifest("a/b", sha256(theirs), theirs, MEDIA_MANIFEST)
            index = {
                "schemaVersion": 2,
                "mediaType": MEDIA_INDEX,
                "manifests": [{**descriptor(theirs, MEDIA_MANIFEST), "artifactType": SIGNATURE}],
            }
            self._registry.put_manifest("a/b", TAG, json.dumps(index).encode(), MEDIA_INDEX)
        return listed


def overwritten(client: RegistryClient, registry: FakeRegistry, times: int) -> RegistryClient:
    return cast("RegistryClient", _Overwritten(client, registry, times))


def test_an_entry_that_somebody_overwrote_is_written_again(
    client: RegistryClient, fake: FakeRegistry
) -> None:
    attach(overwritten(client, fake, 2), "a/b", manifest(SBOM, IMAGE))

    assert {one.artifact_type for one in found(client)} == {SBOM, SIGNATURE}


def test_an_entry_that_is_overwritten_for_ever_is_a_failure(
    client: RegistryClient, fake: FakeRegistry
) -> None:
    with pytest.raises(ProtocolFailed, match="does not keep what is attached"):
        attach(overwritten(client, fake, 99), "a/b", manifest(SBOM, IMAGE))


def test_a_tag_that_somebody_uses_otherwise_is_left_alone(
    client: RegistryClient, fake: FakeRegistry
) -> None:
    client.put_manifest("a/b", TAG, IMAGE, MEDIA_MANIFEST)

    with pytest.raises(ProtocolFailed, match="something else under the tag"):
        attach(client, "a/b", manifest(SBOM, IMAGE))

    assert fake.tagged("a/b", TAG) == sha256(IMAGE)


@pytest.mark.live
def test_a_real_registry_without_the_api_lists_by_the_tag(registry: str) -> None:
    client = stored(RegistryClients().at(registry))
    (sbom,) = attach(client, "a/b", manifest(SBOM, IMAGE))
    (signature,) = attach(client, "a/b", manifest(SIGNATURE, IMAGE))

    found = referrers(client, "a/b", sha256(IMAGE))

    assert [one.digest for one in found] == [sbom.digest, signature.digest]
    assert client.get_manifest("a/b", sbom.digest).data == manifest(SBOM, IMAGE)
