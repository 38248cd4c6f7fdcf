"""One of eight shards changed: what moves into an engine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from packager.core.image import ImageSpec, RuntimeConfig
from packager.images.blobs import BlobReader
from packager.images.daemon.sink import DockerSink
from packager.images.digest_index import DigestIndex
from packager.images.docker_engine import connect_engine
from packager.images.registry.serve import EmbeddedRegistry
from packager.images.target import parse_target
from packager.images.tee import write_image
from tests.conftest import need
from tests.support.made_images import image_with, tar_layer

pytestmark = pytest.mark.live

SHARDS, SIZE = 8, 2_000_000
SHARE = 0.13  # of the bytes of the whole image


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"shard-{number}" for number in range(SHARDS)]
    for path in paths:
        path.write_bytes(os.urandom(SIZE))
    return paths


def spec(shards: list[Path]) -> ImageSpec:
    layers = (tar_layer(f"/opt/{number}", path) for number, path in enumerate(shards))
    return image_with(*layers, runtime=RuntimeConfig(cmd=("/serve",)))


@pytest.mark.parametrize(("changed", "moved"), [(-1, 1), (0, SHARDS)], ids=["last", "first"])
def test_docker_s_own_storage_takes_the_layers_from_the_changed_one_up(
    engine: str, shards: list[Path], tmp_path: Path, changed: int, moved: int
) -> None:
    if "containerd" in str(connect_engine().info().get("DriverStatus")):
        pytest.skip(f"{engine} uses the containerd image store")

    load(shards, tmp_path)
    shards[changed].write_bytes(os.urandom(SIZE))

    sent = load(shards, tmp_path)

    assert moved * SIZE < sent <= moved * SIZE * 1.04
    assert moved > 1 or sent <= SHARE * SHARDS * SIZE
    connect_engine().api.remove_image("packager-shards:1")


def test_a_containerd_image_store_takes_the_changed_layer_alone(
    engine: str, shards: list[Path], tmp_path: Path
) -> None:
    need("ctr")
    socket = Path(engine.removeprefix("unix://")).with_name("containerd.sock")
    if not socket.exists():
        pytest.skip("the engine has no containerd of its own")

    pull(shards, tmp_path, socket)
    shards[0].write_bytes(os.urandom(SIZE))

    assert pull(shards, tmp_path, socket) <= SHARE * SHARDS * SIZE


def load(shards: list[Path], root: Path) -> int:
    """Write the image into the engine; give the bytes that moved."""
    sink = DockerSink(parse_target("docker:packager-shards:1"), reader=BlobReader())
    write_image(spec(shards), [sink], reader=BlobReader(), index=DigestIndex(root / "index"))
    return sink.bytes_sent


def pull(shards: list[Path], root: Path, socket: Path) -> int:
    """Let containerd pull the image as `docker:` would; give the bytes that moved."""
    written = write_image(spec(shards), [], reader=BlobReader(), index=DigestIndex(root / "index"))
    blobs = {layer.digest: layer.blob for layer in written.layers}
    with EmbeddedRegistry(written.image, blobs, BlobReader()) as served:
        name = f"{served.name}@{written.image.digest}"
        command = ["ctr", "-a", str(socket), "-n", "packager-test", "images"]
        done = subprocess.run([*command, "pull", "--plain-http", name], capture_output=True)
        assert done.returncode == 0, done.stderr
        return served.bytes_served
