"""What others attached to an image travels with it: referrers, theirs, and cosign's tags."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from packager.core.image import MEDIA_CONFIG, MEDIA_INDEX, MEDIA_MANIFEST, Descriptor
from packager.images.attached import attach_document
from packager.images.registry.clients import RegistryClients
from packager.images.registry.referrers import attach
from packager.images.registry.upload import put_blob
from tests.conftest import need
from tests.support.commandline import TINY, Packager, printed
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.image_schemas import INDEX, check_oci
from tests.support.processes import run_program
from tests.support.real_registry import docker_registry

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
SIGNED = "application/vnd.dev.cosign.simplesigning.v1+json"
TYPES = f"{MEDIA_MANIFEST}, {MEDIA_INDEX}"


class Repository:
    """A repository as other tools see it: by requests alone."""

    def __init__(self, name: str) -> None:
        host, _, self.path = name.partition("/")
        self.name, self.base = name, f"http://{host}/v2/{self.path}"
        self.client = RegistryClients().at(host)

    def manifest(self, pointer: str) -> bytes:
        asked = Request(f"{self.base}/manifests/{pointer}", headers={"Accept": TYPES})
        with urlopen(asked) as answer:
            data: bytes = answer.read()
        return data

    def has(self, pointer: str) -> bool:
        try:
            return bool(self.manifest(pointer))
        except HTTPError:
            return False

    def put_blob(self, data: bytes) -> dict[str, Any]:
        put_blob(self.client, self.path, data)
        return {"digest": sha256(data), "size": len(data)}

    def put_manifest(self, pointer: str, data: bytes) -> None:
        headers = {"Content-Type": MEDIA_MANIFEST}
        urlopen(Request(f"{self.base}/manifests/{pointer}", data, headers, method="PUT")).close()

    def sign(self, digest: str, suffix: str, *payloads: bytes) -> str:
        """Put what cosign keeps under a tag; the payloads need not be signatures for this."""
        layers = [{"mediaType": SIGNED, **self.put_blob(payload)} for payload in payloads]
        for number, layer in enumerate(layers):
            layer["annotations"] = {"dev.cosignproject.cosign/signature": f"{number}"}
        config = json.dumps({"rootfs": {"type": "layers", "diff_ids": []}}).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": MEDIA_MANIFEST,
            "config": {"mediaType": MEDIA_CONFIG, **self.put_blob(config)},
            "layers": layers,
        }
        tag = digest.replace(":", "-") + suffix
        self.put_manifest(tag, json.dumps(manifest).encode())
        return tag

    def payloads(self, tag: str) -> list[str]:
        return [layer["digest"] for layer in json.loads(self.manifest(tag))["layers"]]

    def attach(self, digest: str, document: bytes, kind: str) -> str:
        size = len(self.manifest(digest))
        subject = Descriptor(media_type=MEDIA_MANIFEST, digest=digest, size=size)
        made = attach_document(subject, document, kind)
        for blob in made.blobs:
            self.put_blob(blob)
        return attach(self.client, self.path, made.manifest)[0].digest


@pytest.fixture(params=["real", "with the API"])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two registries: docker-registry keeps referrers under a tag, the double lists them."""
    if request.param == "real":
        need("docker-registry")
        (tmp_path / "first").mkdir()
        (tmp_path / "second").mkdir()
        with (
            docker_registry(tmp_path / "first") as one,
            docker_registry(tmp_path / "second") as two,
        ):
            yield one, two
        return
    with FakeRegistry(referrers=True) as first, FakeRegistry(referrers=True) as second:
        yield first.host, second.host


def pushed(packager: Packager, host: str) -> tuple[Repository, str]:
    out = printed(packager, *BUILD, "--output", f"{host}/a:1")
    return Repository(f"{host}/a"), out.rpartition("@")[2]


@pytest.mark.live
def test_signatures_of_anybody_travel_through_registries_and_layouts(
    packager: Packager, hosts: tuple[str, str], tmp_path: Path
) -> None:
    source, digest = pushed(packager, hosts[0])
    tags = [source.sign(digest, suffix, suffix.encode()) for suffix in (".sig", ".att", ".sbom")]
    sbom = source.attach(digest, b"{}", "application/spdx+json")
    carried = [
        source.attach(digest, b'{"a":1}', BUNDLE),
        source.attach(sbom, b'{"b":1}', "application/vnd.cncf.notary.signature"),
        sbom,
    ]

    printed(packager, "copy", f"{source.name}:1", f"{hosts[1]}/b:1", "oci:out", "--quiet")
    printed(packager, "push", "oci:out", f"{hosts[1]}/c:1", "--quiet")

    for name in ("b", "c"):
        copy = Repository(f"{hosts[1]}/{name}")
        assert all(copy.manifest(one) == source.manifest(one) for one in (*tags, *carried))
    entries = json.loads((tmp_path / "out/index.json").read_bytes())["manifests"]
    by_digest = {entry["digest"]: entry for entry in entries}
    check_oci((tmp_path / "out/index.json").read_bytes(), INDEX)
    assert by_digest[digest]["annotations"]["kind"] == "dev.cosignproject.cosign/image"
    assert by_digest[sbom]["artifactType"] == "application/spdx+json"
    kinds = {one["annotations"]["org.opencontainers.image.ref.name"]: one["annotations"]
             for one in entries if "artifactType" not in one}  # fmt: skip
    assert kinds[tags[0]]["kind"] == "dev.cosignproject.cosign/sigs"
    assert kinds[tags[1]]["kind"] == "dev.cosignproject.cosign/atts"
    shown = run_program(need("skopeo"), "inspect", f"oci:{tmp_path}/out:latest")
    assert json.loads(shown.stdout)["Digest"] == digest


def test_signatures_that_are_there_stay(packager: Packager) -> None:
    with FakeRegistry() as registry:
        source, digest = pushed(packager, registry.host)
        printed(packager, "copy", f"{source.name}:1", f"{registry.host}/b:1", "--quiet")
        copy = Repository(f"{registry.host}/b")
        tag = source.sign(digest, ".sig", b"theirs", b"both")
        copy.sign(digest, ".sig", b"ours")
        copy.sign(digest, ".sbom", b"another")
        source.sign(digest, ".sbom", b"an SBOM")

        for _ in range(2):
            printed(packager, "copy", f"{source.name}:1", f"{registry.host}/b:1", "--quiet")
            printed(packager, "copy", f"{registry.host}/b:1", "oci:out", "--quiet")
        printed(packager, "copy", "oci:out", f"{source.name}:2", "--quiet")

        assert copy.payloads(tag) == [sha256(one) for one in (b"ours", b"theirs", b"both")]
        assert sorted(source.payloads(tag)) == sorted(copy.payloads(tag))
        assert copy.payloads(tag.replace(".sig", ".sbom")) == [sha256(b"another")]


def test_an_image_that_is_replaced_takes_its_signatures_along(
    packager: Packager, tmp_path: Path
) -> None:
    with FakeRegistry(referrers=True) as registry:
        source, digest = pushed(packager, registry.host)
        before = source.attach(digest, b'{"a":1}', BUNDLE)
        source.attach(before, b'{"b":1}', "application/vnd.example")
        source.sign(digest, ".sig", b"theirs")
        printed(packager, "copy", f"{source.name}:1", "oci:out", "oci:other", "--quiet")
        printed(packager, *BUILD, "--served-name", "second", "--output", "oci:other:2")

        printed(packager, *BUILD, "--served-name", "second", "--output", "oci:out")

    only = json.loads((tmp_path / "out/index.json").read_bytes())["manifests"]
    both = json.loads((tmp_path / "other/index.json").read_bytes())["manifests"]
    assert (len(only), len(both)) == (1, 5)
    blobs = {path.name for path in (tmp_path / "out/blobs/sha256").iterdir()}
    assert before[7:] not in blobs


def test_a_view_takes_no_signatures(packager: Packager) -> None:
    with FakeRegistry() as registry:
        source, digest = pushed(packager, registry.host)
        tag = source.sign(digest, ".sig", b"theirs")

        printed(packager, "copy", "--view", "weights", f"{source.name}:1", f"{registry.host}/v:1")

        assert not Repository(f"{registry.host}/v").has(tag)
