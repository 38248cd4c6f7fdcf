"""Layers that the registry has: mounted from where they were seen, known from earlier images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from packager.core.image import MEDIA_MANIFEST, FileRange, Layer, RuntimeConfig
from packager.core.model import ModelFile
from packager.images.blobs import BlobReader
from packager.images.claim_key import ClaimKeys
from packager.images.digest_index import DigestIndex
from packager.images.layer_plan import model_layers
from packager.images.registry.clients import RegistryClients
from packager.images.seen_blobs import SeenBlobs
from packager.images.tee import write_image
from tests.support.doubles.registry import FakeRegistry
from tests.support.made_images import image_with, registry_sink

SIZE = 3_000_000


@pytest.fixture(
    params=[pytest.param("real", marks=pytest.mark.live), "fake"], ids=["docker-registry", "fake"]
)
def host(request: pytest.FixtureRequest) -> Iterator[str]:
    """HOST:PORT of either kind of registry."""
    if request.param == "real":
        yield request.getfixturevalue("registry")
    else:
        with FakeRegistry() as fake:
            yield fake.host


@dataclass
class Pushed:
    """What one push did."""

    digest: str
    bytes_read: int
    bytes_sent: int
    states: list[str]


class Machine:
    """A machine with a memory of its own; its model lies in a directory of its own."""

    def __init__(self, root: Path, content: bytes, *, named: bool) -> None:
        self.root = root
        root.mkdir()
        (root / "model.safetensors").write_bytes(content)
        self._named = named

    def layers(self) -> tuple[Layer, ...]:
        place = self.root / "model.safetensors"
        file = ModelFile(
            path="model.safetensors",
            role="weights",
            content=FileRange(path=str(place), offset=0, length=SIZE),
            # What a hub would list. The bytes are made so that it stands for them.
            sha256=place.read_bytes()[:1].hex() * 32 if self._named else "",
        )
        return model_layers([file], base_layers=0, directory="/opt/packager/model")

    def push(self, target: str) -> Pushed:
        state = self.root / "state.sqlite"
        keys = ClaimKeys({"PACKAGER_CLAIM_KEY": "off"}, [].append)
        sink = registry_sink(target, RegistryClients(), seen=SeenBlobs(state), keys=keys)
        reader = BlobReader()
        events: list[object] = []
        written = write_image(
            image_with(*self.layers(), runtime=RuntimeConfig(cmd=("serve",))),
            [sink],
            reader=reader,
            index=DigestIndex(state),
            on_event=events.append,
        )
        states = [str(getattr(event, "state", "")) for event in events]
        return Pushed(written.image.digest, reader.bytes_read, sink.bytes_sent, states)


def machine(root: Path, name: str, letter: bytes = b"a", *, named: bool = True) -> Machine:
    return Machine(root / name, letter * SIZE, named=named)


def repository(tmp_path: Path, name: str) -> str:
    """A name that no other test of this run has used in the registry."""
    return f"{tmp_path.parent.name.replace('_', '-').strip('-').lower()}/{name}"


def test_a_layer_alike_is_hashed_and_not_sent(host: str, tmp_path: Path) -> None:
    target = f"{host}/{repository(tmp_path, 'model')}:1"
    first = machine(tmp_path, "one", named=False).push(target)

    second = machine(tmp_path, "two", named=False).push(target)

    assert second.digest == first.digest
    assert (second.bytes_read, second.bytes_sent) == (SIZE, 0)
    assert "hashing" in second.states


def test_a_layer_alike_of_other_content_is_sent(host: str, tmp_path: Path) -> None:
    target = f"{host}/{repository(tmp_path, 'model')}:1"
    machine(tmp_path, "one", b"a").push(target)

    assert machine(tmp_path, "two", b"b").push(target).bytes_sent > SIZE


def test_a_blob_that_went_elsewhere_is_looked_for_in_the_next_place(tmp_path: Path) -> None:
    one = machine(tmp_path, "one")
    with FakeRegistry() as registry:
        first = one.push(f"{registry.host}/first:1")
        one.push(f"{registry.host}/second:1")
        for repository, digest in list(registry.blobs):
            if repository == "second":
                del registry.blobs[repository, digest]

        third = one.push(f"{registry.host}/third:1")

        assert third.digest == first.digest
        assert third.bytes_sent < 2_000
        assert registry.uploads == {}


def test_an_unchanged_image_asks_for_no_earlier_one(tmp_path: Path) -> None:
    one = machine(tmp_path, "one")
    with FakeRegistry() as registry:
        one.push(f"{registry.host}/model:1")
        registry.seen.clear()

        one.push(f"{registry.host}/model:1")

        assert registry.requests("GET", "/tags/list") == []


def test_only_tags_that_can_be_are_listed() -> None:
    with FakeRegistry() as registry:
        client = RegistryClients().at(registry.host)
        for name in ("1", "../../other/manifests/1", "two words", "v1.0", "x" * 129):
            registry.put_manifest("model", name, b"{}", "application/json")

        assert client.list_tags("model") == ["1", "v1.0"]


def test_of_many_tags_few_are_read_and_no_signatures(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        for number in range(10, 60):
            registry.put_manifest("model", f"v{number}", b"{}", MEDIA_MANIFEST)
        registry.put_manifest("model", f"sha256-{'f' * 64}.sig", b"{}", MEDIA_MANIFEST)

        machine(tmp_path, "one").push(f"{registry.host}/model:v1")

        read = {seen.path.rpartition("/")[2] for seen in registry.requests("GET", "/manifests/v")}
        assert read == {"v1", "v56", "v57", "v58", "v59"}
        assert registry.requests("GET", "sha256-") == []
