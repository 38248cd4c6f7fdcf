"""Copying one of several platforms' images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cases import read_tables
from tests.support.commandline import TINY, Packager
from tests.support.doubles.registry import FakeRegistry, sha256

MEDIA_INDEX = "application/vnd.oci.image.index.v1+json"


@pytest.mark.parametrize("where", ["registry", "layout"])
def test_a_copy_says_which_platform_it_took(packager: Packager, tmp_path: Path, where: str) -> None:
    model = ("--model", str(TINY), "--instance", "local", "--base", "scratch")
    digest = packager("build", *model, "--output", "oci:out").out.strip().rpartition("@")[2]
    blobs = tmp_path / "out/blobs/sha256"
    manifest = (blobs / digest.removeprefix("sha256:")).read_bytes()
    found = read_tables(__file__)["index"]
    found["manifests"][1] |= {"digest": digest, "size": len(manifest)}
    index = json.dumps(found).encode()

    with FakeRegistry() as registry:
        if where == "registry":
            packager("push", "oci:out", f"{registry.host}/tiny:1")
            registry.put_manifest("tiny", "all", index, MEDIA_INDEX)
            source = f"{registry.host}/tiny:all"
        else:
            (blobs / sha256(index).removeprefix("sha256:")).write_bytes(index)
            outer = {"mediaType": MEDIA_INDEX, "digest": sha256(index), "size": len(index)}
            (tmp_path / "out/index.json").write_text(
                json.dumps({"schemaVersion": 2, "manifests": [outer]})
            )
            source = "oci:out"

        done = packager("copy", source, "oci:copy")

    assert done.status == 0, done.err
    assert done.out.strip().endswith(digest)
    assert (
        "of the images for linux/arm64, linux/amd64, only the one for linux/amd64 is copied; "
        "--platform chooses"
    ) in done.err
