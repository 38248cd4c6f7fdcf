"""Layouts without their base's layers, seen by independent tools and by ourselves."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import need
from tests.live.building import build, ran, told
from tests.live.image_tools import inspected, skopeo
from tests.support.commandline import TINY, Packager

pytestmark = pytest.mark.live


@dataclass(frozen=True)
class Built:
    """A sparse layout beside the registry that has its base."""

    root: Path
    registry: str
    said: str
    digest: str

    def blobs(self, layout: str) -> set[str]:
        return {path.name for path in (self.root / layout / "blobs/sha256").iterdir()}


@pytest.fixture
def built(packager: Packager, registry: str, tmp_path: Path) -> Built:
    """Our small model as the base of another image of it."""
    base = f"{registry}/bases/tiny:1"
    build(packager, base)
    done = ran(
        packager, "build", "--model", str(TINY), "--instance", "local", "--base", base,
        "--max-batch", "3", "--output", "oci:sparse", "--sparse-base",
    )  # fmt: skip
    return Built(tmp_path, registry, done.err, done.out.strip().rpartition("@")[2])


def test_the_layout_and_the_output_say_that_the_base_is_not_there(built: Built) -> None:
    [entry] = json.loads((built.root / "sparse/index.json").read_bytes())["manifests"]
    where = entry["annotations"]["dev.packager.sparse-base"]

    assert where == f"registry://{built.registry}/bases/tiny"
    assert "layouts lack the base's 5 layers (8.6 MB)" in built.said
    assert f"{built.registry}/bases/tiny:1 sha256:" in built.said


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True)


def test_other_tools_read_what_is_there_and_miss_what_is_not(built: Built) -> None:
    sparse, other = built.root / "sparse", built.root / "other"

    found = inspected(f"oci:{sparse}:latest")
    copied = run(need("skopeo"), "copy", f"oci:{sparse}:latest", f"oci:{other}:latest")
    unpacked = run(
        need("umoci"), "unpack", "--image", f"{sparse}:latest", str(built.root / "unpacked")
    )

    assert found["Digest"] == built.digest
    for failed in (copied, unpacked):
        assert failed.returncode != 0
        assert "no such file" in failed.stderr


def test_a_copy_fetches_the_base_and_is_whole(built: Built, packager: Packager) -> None:
    done = ran(packager, "copy", "oci:sparse", "oci:full")
    full, there = f"oci:{built.root / 'full'}:latest", f"oci:{built.root / 'there'}:latest"
    skopeo("copy", full, there)

    assert done.out.strip() == f"oci:{built.root / 'full'}:latest@{built.digest}"
    assert len(built.blobs("full")) > len(built.blobs("sparse"))


def test_a_push_to_the_base_s_registry_mounts_the_base(built: Built, packager: Packager) -> None:
    name = f"{built.registry}/models/from-sparse:1"

    said = told(packager, "push", "oci:sparse", name)

    assert said["digest"] == built.digest
    assert said["transfer"]["bytes_read"] < 200_000
    assert inspected(f"docker://{name}")["Digest"] == built.digest


def test_a_sparse_layout_is_a_base_like_any_other(built: Built, packager: Packager) -> None:
    more = ("--max-batch", "4", "--format", "json")
    done = build(packager, "oci:above", *more, base="oci:sparse")

    layers = {layer["digest"].removeprefix("sha256:") for layer in json.loads(done.out)["layers"]}
    assert layers < built.blobs("above")
