"""A base that does not fit, or moved since it was recorded, is refused before any work."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.support.commandline import TINY, Packager

MODEL = ("--model", str(TINY), "--instance", "local")


def write_base(layout: Path, architecture: str, *, words: str = "") -> str:
    """Write a base without layers; return the digest of its manifest."""
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": [f"WORDS={words}"]},
        "rootfs": {"type": "layers", "diff_ids": []},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": write_blob(layout, "application/vnd.oci.image.config.v1+json", config),
        "layers": [],
    }
    descriptor = write_blob(layout, str(manifest["mediaType"]), manifest)
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [descriptor]}))
    return str(descriptor["digest"])


def write_blob(layout: Path, media_type: str, value: object) -> dict[str, object]:
    data = json.dumps(value).encode()
    digest = hashlib.sha256(data).hexdigest()
    (layout / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs/sha256" / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["build", "dry-run"])
@pytest.mark.parametrize("architecture", ["arm64", "s390x"])
def test_a_base_of_another_platform_is_refused(
    more: tuple[str, ...], architecture: str, tmp_path: Path, packager: Packager
) -> None:
    """An arm64 base in an amd64 image starts nowhere."""
    write_base(tmp_path / "base", architecture)

    done = packager("build", *MODEL, "--base", "oci:base", "--output", "oci:image", *more, status=2)

    said = f"base image 'oci:base' is for linux/{architecture}, the image is for linux/amd64"
    assert said in done.err
    assert not (tmp_path / "image").exists()


def test_a_base_of_the_images_platform_is_taken(tmp_path: Path, packager: Packager) -> None:
    write_base(tmp_path / "base", "amd64")

    packager("build", *MODEL, "--base", "oci:base", "--output", "oci:image", status=0)


def test_a_base_that_moved_since_the_record_is_refused_before_weights_are_read(
    tmp_path: Path, packager: Packager
) -> None:
    recorded = write_base(tmp_path / "base", "amd64", words="recorded")
    built = packager(
        *("build", *MODEL, "--base", "oci:base", "--output", "oci:image"),
        *("--record", "image.json"),
    )
    assert built.status == 0, built.err
    moved = write_base(tmp_path / "base", "amd64", words="moved")
    weights = ("--model", str(tmp_path / "no-model-any-more"))

    done = packager("build", "--from-record", "image.json", *weights, "--output", "oci:again")

    assert done.status == 5, done.err
    assert f"'oci:base' is now {moved}, the record was made with {recorded}" in done.err
    assert not (tmp_path / "again").exists()
