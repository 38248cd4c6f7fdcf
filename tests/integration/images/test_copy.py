"""`packager copy` and `packager push`: bytes that stay, and bytes that do not move."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import cases, read_tables
from tests.support.commandline import TINY, Packager
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.image_schemas import CONFIG, INDEX, MANIFEST, check_modelpack_config, check_oci
from tests.support.made_images import blob_in, blobs_in

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")


@dataclass
class Desk:
    """A layout `out` with an image, a registry, and the command."""

    packager: Packager
    registry: FakeRegistry
    layout: Path
    built: str  # digest of the image

    @property
    def host(self) -> str:
        return self.registry.host

    def done(self, *words: str) -> str:
        """Run a command that succeeds; give what it prints."""
        done = self.packager(*words)
        assert done.status == 0, done.err
        return done.out

    def told(self, *words: str) -> dict[str, Any]:
        """Run a command that succeeds; give its result."""
        found: dict[str, Any] = json.loads(self.done(*words, "--format", "json"))
        return found

    def push(self, name: str) -> None:
        self.done("push", "oci:out", f"{self.host}/{name}", "--quiet")

    def blob(self, digest: str) -> bytes:
        return blob_in(self.layout, digest).read_bytes()


@pytest.fixture
def desk(packager: Packager, tmp_path: Path) -> Iterator[Desk]:
    done = packager(*BUILD, "--output", "oci:out", status=0)
    with FakeRegistry() as fake:
        yield Desk(packager, fake, tmp_path / "out", done.out.strip().rpartition("@")[2])


def test_push_keeps_every_byte_of_the_manifest(desk: Desk) -> None:
    said = desk.done("push", "oci:out", f"{desk.host}/tiny:1", "--quiet")

    assert said == f"{desk.host}/tiny:1@{desk.built}\n"
    assert desk.registry.manifests["tiny", "1"][1] == desk.blob(desk.built)


def test_a_second_copy_reads_and_sends_nothing(desk: Desk) -> None:
    desk.push("tiny:1")

    again = desk.told("push", "oci:out", f"{desk.host}/tiny:2")

    assert again["digest"] == desk.built
    nothing = dict.fromkeys(("bytes_read", "bytes_sent", "layers_streamed"), 0)
    assert again["transfer"] == {**nothing, "layers_known": 5}


def test_within_a_registry_layers_are_mounted(desk: Desk) -> None:
    desk.push("a:1")

    done = desk.told("copy", f"{desk.host}/a:1", f"{desk.host}/b:1")

    assert (done["digest"], done["transfer"]["bytes_read"]) == (desk.built, 0)
    assert len(desk.registry.requests("POST", "mount=")) == 5


def test_from_registry_to_registry_layers_are_streamed(desk: Desk) -> None:
    desk.push("a:1")
    with FakeRegistry() as other:
        said = desk.done("copy", f"{desk.host}/a:1", f"{other.host}/b:1", "oci:back", "--quiet")
        assert other.manifests["b", "1"] == desk.registry.manifests["a", "1"]

    assert {line.rpartition("@")[2] for line in said.splitlines()} == {desk.built}


def test_a_schema2_manifest_of_docker_stays_one(desk: Desk) -> None:
    case = read_tables(__file__)["schema2"]
    config = case["config"].encode()
    digests = [desk.registry.put("a", data) for data in (config, b"a layer")]
    document = (case["manifest"] % (*digests,)).encode()
    kind = json.loads(document)["mediaType"]
    desk.registry.put_manifest("a", "1", document, kind)

    desk.done("copy", f"{desk.host}/a:1", f"{desk.host}/b:1")

    assert desk.registry.manifests["b", "1"] == (kind, document)


def test_a_layer_that_is_damaged_names_nothing(desk: Desk) -> None:
    layer = json.loads(desk.blob(desk.built))["layers"][0]["digest"]
    data = desk.blob(layer)
    blob_in(desk.layout, layer).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    done = desk.packager("push", "oci:out", f"{desk.host}/tiny:1", "--quiet")

    assert (done.status, done.out) == (76, "")
    assert ("tiny", "1") not in desk.registry.manifests


@pytest.mark.parametrize("view", ["weights", "modelpack"])
def test_a_view_beside_its_image_moves_no_layer(desk: Desk, view: str) -> None:
    image = f"{desk.host}/tiny:1"
    desk.push("tiny:1")

    done = desk.told("copy", "--view", view, image, f"{desk.host}/tiny:{view}")

    manifest = desk.registry.manifests["tiny", view][1]
    assert (done["digest"], done["transfer"]["bytes_read"]) == (sha256(manifest), 0)
    assert 0 < done["transfer"]["bytes_sent"] < 2000
    check_oci(manifest, MANIFEST)


def test_views_in_a_layout_are_valid_and_share_its_blobs(desk: Desk) -> None:
    before = blobs_in(desk.layout)
    for view in ("weights", "modelpack"):
        desk.done("copy", "--view", view, "oci:out", f"oci:out:{view}", "--quiet")

    added = [path for path in blobs_in(desk.layout) if path not in before]
    assert len(added) == 4  # two manifests, two configurations
    assert all(path.stat().st_size < 3000 for path in added)
    index = (desk.layout / "index.json").read_bytes()
    check_oci(index, INDEX)
    for entry in json.loads(index)["manifests"]:
        manifest = desk.blob(entry["digest"])
        check_oci(manifest, MANIFEST)
        config = json.loads(manifest)["config"]
        data = desk.blob(config["digest"])
        if config["mediaType"].startswith("application/vnd.cncf"):
            check_modelpack_config(data)
        else:
            check_oci(data, CONFIG)


def test_an_artifact_is_not_given_to_an_engine(desk: Desk) -> None:
    done = desk.packager("copy", "--view", "modelpack", "oci:out", "docker:tiny:1")

    assert done.status == 2
    assert "artifact" in done.err


@cases("a_meaningless_command_is_refused")
def test_a_meaningless_command_is_refused(packager: Packager, words: str) -> None:
    assert packager(*words.split()).status == 2
