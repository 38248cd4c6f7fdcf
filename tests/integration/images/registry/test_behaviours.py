"""The contract of pushes, pulls, copies, attachments and tags, at registries of all kinds."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import PackagerError, ProtocolFailed
from packager.core.image import MEDIA_MANIFEST, ImageSpec, Platform
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.oci import canonical_json, sha256
from packager.images.registry.base import RegistryBase, read_documents
from packager.images.registry.clients import RegistryClients
from packager.images.registry.credential import Credentials
from packager.images.registry.reader import RegistryReader
from packager.images.registry.referrers import attach, referrers
from packager.images.registry.upload import put_blob
from packager.images.target import parse_registry_target
from packager.images.tee import write_image
from tests.conftest import need
from tests.support.cases import Case, cases, read_tables
from tests.support.doubles.raw_registry import CONFIG, LAYER, descriptor
from tests.support.doubles.registry import PASSWORD, USER, FakeRegistry, Rule
from tests.support.made_images import (
    hasty_clients,
    image_with,
    layout_sink,
    registry_sink,
    tar_layer,
)

TABLES = read_tables(__file__)


SMALL = b"settings" * 100
OPERATIONS = ("push", "pull", "copy", "attach", "tags")


def pushed_image(size: int) -> ImageSpec:
    return image_with(tar_layer("/w", bytes(size)), tar_layer("/s", SMALL))


class Contract:
    """What is done at one registry, which has an image `base:1` and, where `tagged`, `push:1`."""

    def __init__(self, registry: FakeRegistry, root: Path, size: int) -> None:
        self.registry, self.root, self.size = registry, root, size
        login = Credentials(user=USER, password=PASSWORD) if registry.quirks.auth else None
        self.clients: RegistryClients = hasty_clients(find_credentials=lambda name: login)

    def name(self, repository: str) -> str:
        return f"{self.registry.host}/{repository}:1"

    def push(self, repository: str = "push", image: ImageSpec | None = None) -> None:
        write_image(
            image or pushed_image(self.size),
            [registry_sink(self.name(repository), self.clients)],
            reader=BlobReader([RegistryReader(clients=self.clients)]),
            index=DigestIndex(self.root / "index"),
            sleep=lambda seconds: None,
        )
        assert self.registry.is_complete(repository, "1")

    def pull(self) -> None:
        found = read_documents(parse_registry_target(self.name("base")), Platform(), self.clients)
        layer = json.loads(found.manifest)["layers"][0]
        client = self.clients.at(self.registry.host)
        pieces = client.read_blob("base", layer["digest"], offset=0, length=layer["size"])
        assert sha256(b"".join(pieces)) == layer["digest"]

    def copy(self) -> None:
        target = parse_registry_target(self.name("base"))
        base = RegistryBase(clients=self.clients).facts(target, Platform())
        self.push("copy", image_with(*base.layers, base=base))

    def attach(self) -> None:
        client = self.clients.at(self.registry.host)
        subject = self.registry.tagged("base", "1")
        put_blob(client, "base", b"{}")
        empty = descriptor(b"{}", "application/vnd.oci.empty.v1+json")
        about = {"mediaType": MEDIA_MANIFEST, "digest": subject, "size": 1}
        made = {"schemaVersion": 2, "mediaType": MEDIA_MANIFEST, "artifactType": "a/b"}
        document = canonical_json(made | {"config": empty, "layers": [empty], "subject": about})
        attach(client, "base", document)
        assert sha256(document) in [one.digest for one in referrers(client, "base", subject)]

    def tags(self) -> None:
        assert "1" in self.clients.at(self.registry.host).list_tags("base")


@contextmanager
def registry_of(case: Case, **more: Any) -> Iterator[FakeRegistry]:
    """Run a registry of this behaviour with an image in it."""
    rules = [Rule(**rule) for rule in case.get("rules", ())]
    with FakeRegistry(**case.get("quirks", {}), rules=rules, **more) as registry:
        for repository in ("base", *(("push", "copy") if case.get("tagged") else ())):
            content = b"another" if repository != "base" else b"layer" * 1000
            image = {
                "schemaVersion": 2,
                "mediaType": MEDIA_MANIFEST,
                "config": descriptor(config := canonical_json(_config(content)), CONFIG),
                "layers": [descriptor(content, LAYER)],
            }
            for blob in (content, config):
                registry.put(repository, blob)
            registry.put_manifest(repository, "1", canonical_json(image), MEDIA_MANIFEST)
        yield registry


def _config(layer: bytes) -> dict[str, Any]:
    fs = {"type": "layers", "diff_ids": [sha256(layer)]}
    return {"architecture": "amd64", "os": "linux", "rootfs": fs}


@cases("behaviour")
def test_a_registry_is_used_as_far_as_it_can_be(case: Case, tmp_path: Path) -> None:
    fails: dict[str, str] = case.get("fails", {})
    size = case.get("size", 20_000)
    for operation in OPERATIONS:
        with registry_of(case) as registry:
            do: Callable[[], None] = getattr(
                Contract(registry, tmp_path / operation, size), operation
            )
            if operation not in fails:
                do()
                continue
            with pytest.raises(PackagerError) as failed:
                do()
            assert re.search(fails[operation], failed.value.message), failed.value.message
            assert failed.value.hint or isinstance(failed.value, ProtocolFailed)
            if case.get("unsent"):
                assert sum(seen.received for seen in registry.requests("PATCH")) == 0


SKOPEO = TABLES["skopeo"]


@pytest.mark.extended
@cases("behaviour", only=lambda row: "lies" not in row)
def test_what_skopeo_can_do_packager_can(case: Case, tmp_path: Path) -> None:
    layout_of(tmp_path)
    for operation, words in SKOPEO.items():
        if operation not in case.get("fails", {}):
            continue  # the contract has it succeed
        with registry_of(case) as registry:
            named = [word.format(root=tmp_path, host=registry.host) for word in words]
            sides = ["--src-", "--dest-"] if words[0] == "copy" else ["--"]
            options = [f"{side}tls-verify=false" for side in sides]
            if registry.quirks.auth:
                options += [f"{side}creds={USER}:{PASSWORD}" for side in sides]
            options += ["--preserve-digests"] if words[0] == "copy" else []
            ended = subprocess.run(
                [need("skopeo"), named[0], *options, *named[1:]],
                capture_output=True,
                check=False,
                timeout=120,
            )
            registry.complaints.clear()
            done = ended.returncode == 0
            if done and operation in ("push", "copy"):
                done = registry.is_complete(operation, "1")
        assert not done, operation


def layout_of(root: Path) -> None:
    """Write the image that is pushed as a layout."""
    write_image(
        pushed_image(20_000),
        [layout_sink(f"{root}/image:1")],
        reader=BlobReader(),
        index=DigestIndex(root / "index"),
    )
