"""The same against docker-registry, which is what many registries are made of."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest

from packager.core.image import (
    BaseImage,
    Blob,
    FileRange,
    ImageRef,
    ImageSpec,
    Layer,
    Platform,
    RuntimeConfig,
)
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.oci import scratch
from packager.images.registry.base import RegistryBase
from packager.images.registry.clients import RegistryClients
from packager.images.registry.reader import RegistryReader
from packager.images.registry.sink import RegistrySink
from packager.images.tar import TarEntry, make_tar
from packager.images.target import parse_registry_target
from packager.images.tee import write_image
from tests.conftest import need
from tests.support.doubles.registry import PASSWORD, USER
from tests.support.made_images import registry_sink

pytestmark = pytest.mark.live

SIZE = 20_000_000


@pytest.fixture
def weights(tmp_path: Path) -> Blob:
    (tmp_path / "shard").write_bytes(os.urandom(SIZE))
    content = FileRange(path=str(tmp_path / "shard"), offset=0, length=SIZE)
    return make_tar([TarEntry(path="/opt/shard", content=content)])


def spec(base: BaseImage, *layers: Layer) -> ImageSpec:
    return ImageSpec(
        base=base,
        layers=(*base.layers, *layers),
        runtime=RuntimeConfig(cmd=("serve",)),
        created="1970-01-01T00:00:00Z",
    )


def push(sink: RegistrySink, clients: RegistryClients, image: ImageSpec, root: Path) -> ImageRef:
    reader = BlobReader([RegistryReader(clients=clients)])
    written = write_image(image, [sink], reader=reader, index=DigestIndex(root / "index"))
    return written.refs[0]


def test_skopeo_checks_what_was_pushed(registry: str, weights: Blob, tmp_path: Path) -> None:
    clients = RegistryClients()
    layer = Layer(role="weights", blob=weights)
    sink = registry_sink(f"{registry}/real/model:1", clients)

    ref = push(sink, clients, spec(scratch(Platform()), layer), tmp_path)

    subprocess.run(
        [need("skopeo"), "copy", "--src-tls-verify=false", "--preserve-digests"]
        + ["--dest-oci-accept-uncompressed-layers"]
        + [f"docker://{registry}/real/model:1", f"oci:{tmp_path}/copy:1"],
        check=True,
        capture_output=True,
    )
    index = json.loads((tmp_path / "copy" / "index.json").read_bytes())
    assert index["manifests"][0]["digest"] == ref.digest
    assert sink.bytes_sent > SIZE


def test_a_base_is_mounted_and_read_back(registry: str, weights: Blob, tmp_path: Path) -> None:
    clients = RegistryClients()
    base_target = f"{registry}/real/base:1"
    layer = Layer(role="weights", blob=weights)
    push(registry_sink(base_target, clients), clients, spec(scratch(Platform()), layer), tmp_path)

    base = RegistryBase(clients=clients).facts(parse_registry_target(base_target), Platform())
    sink = registry_sink(f"{registry}/real/mounted:1", clients)
    push(sink, clients, spec(base), tmp_path)

    assert sink.bytes_sent < 2000
    located = sink.locate(base.layers[0].digest)
    assert located is not None
    reader = BlobReader([RegistryReader(clients=clients)])
    assert sum(len(chunk) for chunk in reader.chunks(located)) == weights.size


def test_credentials_of_docker_login_are_used(
    guarded_registry: str, weights: Blob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login(tmp_path, guarded_registry, PASSWORD)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    clients = RegistryClients()
    sink = registry_sink(f"{guarded_registry}/model:1", clients)

    ref = push(
        sink, clients, spec(scratch(Platform()), Layer(role="weights", blob=weights)), tmp_path
    )

    assert clients.at(guarded_registry).get_manifest("model", "1").digest == ref.digest


def test_an_upload_that_was_aborted_in_mid_body_is_really_cancelled(
    tmp_path_factory: pytest.TempPathFactory, registry: str, weights: Blob
) -> None:
    sink = registry_sink(f"{registry}/real/cancelled:1", RegistryClients())
    writer = sink.writer(Layer(role="weights", blob=weights))
    assert writer is not None
    for number, chunk in enumerate(BlobReader().chunks(weights)):
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
