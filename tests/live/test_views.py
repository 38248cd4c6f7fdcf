"""Copies and views in a real registry and a real engine, seen by independent tools."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.live.building import build, ran, told
from tests.live.image_tools import inspected, skopeo, unpacked
from tests.support.commandline import TINY, Packager
from tests.support.image_schemas import MANIFEST, check_oci

pytestmark = pytest.mark.live


@pytest.fixture
def pushed(packager: Packager, registry: str, request: pytest.FixtureRequest) -> str:
    """HOST/REPOSITORY that has a serving image under the tag 1."""
    build(packager, "oci:out")
    name = f"{registry}/{request.node.name.replace('_', '-')}"
    ran(packager, "push", "oci:out", f"{name}:1")
    return name


def check_weights(model: Path) -> None:
    for source in TINY.glob("*.safetensors"):
        assert (model / source.name).read_bytes() == source.read_bytes()


def test_a_modelpack_in_a_registry_is_valid_and_moved_no_layer(
    packager: Packager, pushed: str
) -> None:
    found = told(packager, "copy", "--view", "modelpack", f"{pushed}:1", f"{pushed}:model")

    assert found["transfer"]["bytes_read"] == 0
    raw = inspected(f"docker://{pushed}:model", raw=True).encode()
    assert "sha256:" + hashlib.sha256(raw).hexdigest() == found["digest"]
    check_oci(raw, MANIFEST)
    assert json.loads(raw)["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"


def test_umoci_unpacks_the_weights_view_to_the_files_of_the_model(
    packager: Packager, tmp_path: Path
) -> None:
    build(packager, "oci:out")
    ran(packager, "copy", "--view", "weights", "oci:out", "oci:out:weights", "--quiet")

    root = unpacked(f"{tmp_path}/out:weights", tmp_path / "bundle")

    assert [path.name for path in root.iterdir()] == ["opt"]
    check_weights(root / "opt/packager/model")


def test_a_registry_and_docker_take_the_view_with_dockers_types(
    packager: Packager, pushed: str, engine: str
) -> None:
    import docker

    found = told(packager, "copy", "--view", "docker", f"{pushed}:1", f"{pushed}:docker")
    assert found["transfer"]["bytes_read"] == 0

    raw = json.loads(inspected(f"docker://{pushed}:docker", raw=True))
    assert raw["mediaType"] == "application/vnd.docker.distribution.manifest.v2+json"
    assert docker.from_env().images.pull(f"{pushed}:docker").id == raw["config"]["digest"]


@pytest.mark.capability("views")
def test_umoci_and_skopeo_find_the_model_at_models_in_the_kserve_view(
    packager: Packager, pushed: str, tmp_path: Path
) -> None:
    found = told(packager, "copy", "--view", "kserve", f"{pushed}:1", f"{pushed}:kserve")
    assert found["transfer"]["bytes_read"] == 0

    again = packager("copy", "--view", "kserve", "oci:out", "oci:out:again", "--quiet")
    assert again.out.strip().endswith(found["digest"])
    skopeo(
        "copy", "--src-tls-verify=false", "--dest-oci-accept-uncompressed-layers",
        f"docker://{pushed}:kserve", f"oci:{tmp_path}/taken:kserve",
    )  # fmt: skip
    models = unpacked(f"{tmp_path}/taken:kserve", tmp_path / "bundle") / "models"
    assert str(models.readlink()) == "opt/packager/model"
    check_weights(models)


def test_a_sidecar_of_the_modelcar_view_sees_the_model_through_its_proc_root(
    packager: Packager, engine: str, python_base: str
) -> None:
    import docker

    build(packager, "oci:out", base=f"docker:{python_base}")
    ran(packager, "copy", "--view", "modelcar", "oci:out", "docker:tiny-car:1", "--quiet")

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
    build(packager, "oci:out", "--output", "docker:tiny-copied:1")
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    found = told(packager, "inspect", "docker:tiny-copied:1", env=env)
    ran(packager, "copy", "docker:tiny-copied:1", "oci:back", "--quiet", env=env)

    assert [layer["role"] for layer in found["layers"]] == ["weights"] * 3 + ["model", "config"]
    assert told(packager, "diff", "oci:out", "oci:back")["pull"] == 0
