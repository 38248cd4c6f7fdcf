"""The same against docker-registry, which is what many registries are made of."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from packager.core.image import ImageRef, ImageSpec, Layer, Platform
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.registry.base import RegistryBase
from packager.images.registry.clients import RegistryClients
from packager.images.registry.reader import RegistryReader
from packager.images.registry.sink import RegistrySink
from packager.images.target import parse_registry_target
from packager.images.tee import write_image
from tests.conftest import need
from tests.support.doubles.registry import PASSWORD, USER
from tests.support.known import known
from tests.support.made_images import image_with, registry_sink, tar_layer
from tests.support.processes import run_program

pytestmark = pytest.mark.live

SIZE = 20_000_000


@pytest.fixture
def weights(tmp_path: Path) -> Layer:
    (tmp_path / "shard").write_bytes(os.urandom(SIZE))
    return tar_layer("/opt/shard", tmp_path / "shard")


def push(sink: RegistrySink, clients: RegistryClients, image: ImageSpec, root: Path) -> ImageRef:
    reader = BlobReader([RegistryReader(clients=clients)])
    return write_image(image, [sink], reader=reader, index=DigestIndex(root / "index")).refs[0]


def test_skopeo_checks_what_was_pushed(registry: str, weights: Layer, tmp_path: Path) -> None:
    clients = RegistryClients()
    sink = registry_sink(f"{registry}/real/model:1", clients)

    ref = push(sink, clients, image_with(weights), tmp_path)

    kept = ("--preserve-digests", "--dest-oci-accept-uncompressed-layers")
    places = (f"docker://{registry}/real/model:1", f"oci:{tmp_path}/copy:1")
    run_program(need("skopeo"), "copy", "--src-tls-verify=false", *kept, *places)
    index = json.loads((tmp_path / "copy" / "index.json").read_bytes())
    assert index["manifests"][0]["digest"] == ref.digest
    assert sink.bytes_sent > SIZE


def test_a_base_is_mounted_and_read_back(registry: str, weights: Layer, tmp_path: Path) -> None:
    clients = RegistryClients()
    base_target = f"{registry}/real/base:1"
    push(registry_sink(base_target, clients), clients, image_with(weights), tmp_path)

    base = RegistryBase(clients=clients).facts(parse_registry_target(base_target), Platform())
    sink = registry_sink(f"{registry}/real/mounted:1", clients)
    push(sink, clients, image_with(*base.layers, base=base), tmp_path)

    assert sink.bytes_sent < 2000
    located = known(sink.locate(base.layers[0].digest))
    reader = BlobReader([RegistryReader(clients=clients)])
    assert sum(len(chunk) for chunk in reader.chunks(located)) == weights.blob.size


def test_credentials_of_docker_login_are_used(
    guarded_registry: str, weights: Layer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login(tmp_path, guarded_registry, PASSWORD)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    clients = RegistryClients()
    sink = registry_sink(f"{guarded_registry}/model:1", clients)

    ref = push(sink, clients, image_with(weights), tmp_path)

    assert clients.at(guarded_registry).get_manifest("model", "1").digest == ref.digest


def test_an_upload_that_was_aborted_in_mid_body_is_really_cancelled(
    tmp_path_factory: pytest.TempPathFactory, registry: str, weights: Layer
) -> None:
    writer = known(registry_sink(f"{registry}/real/cancelled:1", RegistryClients()).writer(weights))
    for number, chunk in enumerate(BlobReader().chunks(weights.blob)):
        if number == 3:
            break
        writer.write(chunk)

    writer.abort()

    # docker-registry itself leaves the state of a hash behind, a hundred bytes of it.
    uploads = tmp_path_factory.getbasetemp().glob("registry0/**/real/cancelled/_uploads/*")
    assert [list(upload.glob("data")) for upload in uploads] == [[]]


def login(directory: Path, host: str, password: str) -> None:
    secret = base64.b64encode(f"{USER}:{password}".encode()).decode()
    (directory / "config.json").write_text(json.dumps({"auths": {host: {"auth": secret}}}))
