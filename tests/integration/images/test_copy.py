"""`packager copy` and `packager push`: bytes that stay, and bytes that do not move."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commandline import TINY, Done, Packager
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.image_schemas import CONFIG, INDEX, MANIFEST, check_modelpack_config, check_oci

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake


@pytest.fixture
def built(packager: Packager) -> str:
    """Digest of the image in the layout `out`."""
    done = packager(*BUILD, "--output", "oci:out")
    assert done.status == 0, done.err
    return done.out.strip().rpartition("@")[2]


def copied(done: Done) -> dict[str, object]:
    assert done.status == 0, done.err
    found: dict[str, object] = json.loads(done.out)
    return found


def manifest_in(layout: Path, digest: str) -> bytes:
    return (layout / "blobs/sha256" / digest.removeprefix("sha256:")).read_bytes()


def test_push_keeps_every_byte_of_the_manifest(
    packager: Packager, registry: FakeRegistry, built: str, tmp_path: Path
) -> None:
    done = packager("push", "oci:out", f"{registry.host}/tiny:1", "--quiet")

    assert (done.status, done.out) == (0, f"{registry.host}/tiny:1@{built}\n"), done.err
    assert registry.manifests["tiny", "1"][1] == manifest_in(tmp_path / "out", built)


def test_a_second_copy_reads_and_sends_nothing(
    packager: Packager, registry: FakeRegistry, built: str
) -> None:
    packager("push", "oci:out", f"{registry.host}/tiny:1")

    again = copied(packager("push", "oci:out", f"{registry.host}/tiny:2", "--format", "json"))

    assert again["digest"] == built
    assert again["transfer"] == {
        "bytes_read": 0,
        "bytes_sent": 0,
        "layers_known": 5,
        "layers_streamed": 0,
    }


def test_within_a_registry_layers_are_mounted(
    packager: Packager, registry: FakeRegistry, built: str
) -> None:
    packager("push", "oci:out", f"{registry.host}/a:1")

    done = copied(
        packager("copy", f"{registry.host}/a:1", f"{registry.host}/b:1", "--format", "json")
    )

    assert done["digest"] == built
    assert done["transfer"]["bytes_read"] == 0  # type: ignore[index]
    assert len(registry.requests("POST", "mount=")) == 5


def test_from_registry_to_registry_layers_are_streamed(
    packager: Packager, registry: FakeRegistry, built: str
) -> None:
    packager("push", "oci:out", f"{registry.host}/a:1")
    with FakeRegistry() as other:
        done = packager("copy", f"{registry.host}/a:1", f"{other.host}/b:1", "oci:back", "--quiet")
        assert done.status == 0, done.err
        assert other.manifests["b", "1"] == registry.manifests["a", "1"]

    assert {line.rpartition("@")[2] for line in done.out.splitlines()} == {built}


def test_a_schema2_manifest_of_docker_stays_one(packager: Packager, registry: FakeRegistry) -> None:
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    layer = registry.put("a", b"a layer")
    config = b'{ "os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": []} }'
    document = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": {
                "mediaType": "application/vnd.docker.container.image.v1+json",
                "digest": registry.put("a", config),
                "size": len(config),
            },
            "layers": [
                {
                    "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                    "digest": layer,
                    "size": 7,
                }
            ],
        },
        indent=3,
    ).encode()
    registry.put_manifest("a", "1", document, kind)

    done = packager("copy", f"{registry.host}/a:1", f"{registry.host}/b:1")

    assert done.status == 0, done.err
    assert registry.manifests["b", "1"] == (kind, document)


def test_a_layer_that_is_damaged_names_nothing(
    packager: Packager, registry: FakeRegistry, built: str, tmp_path: Path
) -> None:
    manifest = json.loads(manifest_in(tmp_path / "out", built))
    path = tmp_path / "out/blobs/sha256" / manifest["layers"][0]["digest"].removeprefix("sha256:")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    done = packager("push", "oci:out", f"{registry.host}/tiny:1", "--quiet")

    assert (done.status, done.out) == (76, "")
    assert ("tiny", "1") not in registry.manifests


@pytest.mark.parametrize("view", ["weights", "modelpack"])
def test_a_view_beside_its_image_moves_no_layer(
    packager: Packager, registry: FakeRegistry, built: str, view: str
) -> None:
    image = f"{registry.host}/tiny:1"
    packager("push", "oci:out", image)

    done = copied(
        packager("copy", "--view", view, image, f"{registry.host}/tiny:{view}", "--format", "json")
    )

    assert done["digest"] == sha256(registry.manifests["tiny", view][1])
    assert done["transfer"]["bytes_read"] == 0  # type: ignore[index]
    assert 0 < done["transfer"]["bytes_sent"] < 2000  # type: ignore[index,operator]
    check_oci(registry.manifests["tiny", view][1], MANIFEST)


def test_views_in_a_layout_are_valid_and_share_its_blobs(
    packager: Packager, built: str, tmp_path: Path
) -> None:
    before = set((tmp_path / "out/blobs/sha256").iterdir())
    for view in ("weights", "modelpack"):
        done = packager("copy", "--view", view, "oci:out", f"oci:out:{view}", "--quiet")
        assert done.status == 0, done.err

    added = [path for path in (tmp_path / "out/blobs/sha256").iterdir() if path not in before]
    assert len(added) == 4  # two manifests, two configurations
    assert all(path.stat().st_size < 3000 for path in added)
    index = (tmp_path / "out/index.json").read_bytes()
    check_oci(index, INDEX)
    for entry in json.loads(index)["manifests"]:
        manifest = manifest_in(tmp_path / "out", entry["digest"])
        check_oci(manifest, MANIFEST)
        config = json.loads(manifest)["config"]
        data = manifest_in(tmp_path / "out", config["digest"])
        if config["mediaType"].startswith("application/vnd.cncf"):
            check_modelpack_config(data)
        else:
            check_oci(data, CONFIG)


def test_an_artifact_is_not_given_to_an_engine(packager: Packager, built: str) -> None:
    done = packager("copy", "--view", "modelpack", "oci:out", "docker:tiny:1")

    assert done.status == 2
    assert "artifact" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("push", "oci:out", "oci:other"),
        ("push", "registry.test/a:1", "registry.test/b:1"),
        ("copy", "oci:out"),
        ("copy", "oci:out", "oci:other", "--view", "nothing"),
    ],
)
def test_a_meaningless_command_is_refused(packager: Packager, arguments: tuple[str, ...]) -> None:
    assert packager(*arguments).status == 2
