"""Copies and views in a real registry and a real engine, seen by independent tools."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.conftest import need
from tests.support.commandline import TINY, Packager
from tests.support.image_schemas import MANIFEST, check_oci

pytestmark = pytest.mark.live

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")


def skopeo(*arguments: str) -> str:
    done = subprocess.run([need("skopeo"), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def pushed(packager: Packager, registry: str, request: pytest.FixtureRequest) -> str:
    """HOST/REPOSITORY that has a serving image under the tag 1."""
    packager(*BUILD, "--output", "oci:out")
    name = f"{registry}/{request.node.name.replace('_', '-')}"
    done = packager("push", "oci:out", f"{name}:1")
    assert done.status == 0, done.err
    return name


def test_skopeo_finds_the_digests_that_were_pushed(packager: Packager, pushed: str) -> None:
    done = packager("copy", f"{pushed}:1", f"{pushed}-copy:1", "--format", "json")

    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["transfer"]["bytes_read"] == 0
    seen = json.loads(skopeo("inspect", "--tls-verify=false", f"docker://{pushed}-copy:1"))
    assert seen["Digest"] == found["digest"]
    assert seen["Layers"] == [layer["digest"] for layer in found["layers"]]


def test_a_modelpack_in_a_registry_is_valid_and_moved_no_layer(
    packager: Packager, pushed: str
) -> None:
    done = packager(
        "copy", "--view", "modelpack", f"{pushed}:1", f"{pushed}:model", "--format", "json"
    )

    assert done.status == 0, done.err
    assert json.loads(done.out)["transfer"]["bytes_read"] == 0
    raw = skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{pushed}:model").encode()
    check_oci(raw, MANIFEST)
    assert json.loads(raw)["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"


def test_umoci_unpacks_the_weights_view_to_the_files_of_the_model(
    packager: Packager, tmp_path: Path
) -> None:
    packager(*BUILD, "--output", "oci:out")
    done = packager("copy", "--view", "weights", "oci:out", "oci:out:weights", "--quiet")
    assert done.status == 0, done.err

    subprocess.run(
        [need("umoci"), "unpack", "--image", f"{tmp_path}/out:weights", str(tmp_path / "bundle")],
        check=True,
        capture_output=True,
    )

    unpacked = tmp_path / "bundle/rootfs"
    assert [path.name for path in unpacked.iterdir()] == ["opt"]
    for source in TINY.glob("*.safetensors"):
        found = unpacked / "opt/packager/model" / source.name
        assert found.read_bytes() == source.read_bytes()


def test_the_weights_view_reads_as_a_plain_image_in_docker(
    packager: Packager, pushed: str, engine: str
) -> None:
    import docker

    done = packager("copy", "--view", "weights", f"{pushed}:1", "docker:tiny-weights:1", "--quiet")
    assert done.status == 0, done.err

    client = docker.from_env()
    container = client.containers.create("tiny-weights:1", command="never-started")
    try:
        shard = next(iter(sorted(TINY.glob("*.safetensors"))))
        stream, _ = container.get_archive(f"/opt/packager/model/{shard.name}")
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            data = archive.extractfile(shard.name).read()  # type: ignore[union-attr]
    finally:
        container.remove()
    assert hashlib.sha256(data).digest() == hashlib.sha256(shard.read_bytes()).digest()


def test_a_registry_and_docker_take_the_view_with_dockers_types(
    packager: Packager, pushed: str, engine: str
) -> None:
    import docker

    done = packager(
        "copy", "--view", "docker", f"{pushed}:1", f"{pushed}:docker", "--format", "json"
    )
    assert done.status == 0, done.err
    assert json.loads(done.out)["transfer"]["bytes_read"] == 0

    raw = json.loads(skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{pushed}:docker"))
    assert raw["mediaType"] == "application/vnd.docker.distribution.manifest.v2+json"
    pulled = docker.from_env().images.pull(f"{pushed}:docker")
    assert pulled.id == raw["config"]["digest"]


@pytest.mark.capability("views")
def test_umoci_and_skopeo_find_the_model_at_models_in_the_kserve_view(
    packager: Packager, pushed: str, tmp_path: Path
) -> None:
    done = packager(
        "copy", "--view", "kserve", f"{pushed}:1", f"{pushed}:kserve", "--format", "json"
    )
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["transfer"]["bytes_read"] == 0

    again = packager("copy", "--view", "kserve", "oci:out", "oci:out:again", "--quiet")
    assert again.out.strip().endswith(found["digest"])
    skopeo(
        "copy", "--src-tls-verify=false", "--dest-oci-accept-uncompressed-layers",
        f"docker://{pushed}:kserve", f"oci:{tmp_path}/taken:kserve",
    )  # fmt: skip
    subprocess.run(
        [need("umoci"), "unpack", "--image", f"{tmp_path}/taken:kserve", str(tmp_path / "bundle")],
        check=True,
        capture_output=True,
    )
    models = tmp_path / "bundle/rootfs/models"
    assert str(models.readlink()) == "opt/packager/model"
    for source in TINY.glob("*.safetensors"):
        assert (models / source.name).read_bytes() == source.read_bytes()


def test_a_sidecar_of_the_modelcar_view_sees_the_model_through_its_proc_root(
    packager: Packager, engine: str, python_base: str
) -> None:
    import docker

    built = (
        "build",
        "--model",
        str(TINY),
        "--instance",
        "local",
        "--base",
        f"docker:{python_base}",
    )
    done = packager(*built, "--quiet", "--output", "oci:out")
    assert done.status == 0, done.err
    done = packager("copy", "--view", "modelcar", "oci:out", "docker:tiny-car:1", "--quiet")
    assert done.status == 0, done.err

    client = docker.DockerClient(base_url=engine)
    looks = "import os; print(*sorted(os.listdir(f'/proc/{os.getpid()}/root/models')))"
    try:
        seen = client.containers.run(
            "tiny-car:1", entrypoint=["/usr/bin/python3", "-c", looks], command=[], remove=True,
            network_mode="none",
        )  # fmt: skip
    finally:
        client.images.remove("tiny-car:1", force=True)
    assert {path.name for path in TINY.glob("*.safetensors")} <= set(seen.decode().split())


def test_an_image_of_an_engine_can_be_inspected_and_copied(
    packager: Packager, engine: str, tmp_path: Path
) -> None:
    packager(*BUILD, "--output", "oci:out", "--output", "docker:tiny-copied:1")
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    found = json.loads(packager("inspect", "docker:tiny-copied:1", "--format", "json", env=env).out)
    done = packager("copy", "docker:tiny-copied:1", "oci:back", "--quiet", env=env)
    compared = packager("diff", "oci:out", "oci:back", "--format", "json")

    assert [layer["role"] for layer in found["layers"]] == ["weights"] * 3 + ["model", "config"]
    assert done.status == 0, done.err
    assert json.loads(compared.out)["pull"] == 0
