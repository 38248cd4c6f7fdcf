"""A base that does not fit, or moved since it was recorded, is refused before any work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.commandline import TINY, Packager
from tests.support.made_layers import base_of, write_layout
from tests.support.written_layouts import WrittenLayout

MODEL = ("--model", str(TINY), "--instance", "local")


def write_base(layout: Path, architecture: str, *, words: str = "") -> str:
    """Write a base without layers; return the digest of its manifest."""
    if layout.exists():
        shutil.rmtree(layout)
    write_layout(layout, base_of((), architecture=architecture, config={"Env": [f"WORDS={words}"]}))
    return WrittenLayout(layout).digest


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


def test_a_base_that_moved_since_the_record_is_refused(tmp_path: Path, packager: Packager) -> None:
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
