"""A base that does not fit, or moved since it was recorded, is refused before any work."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from packager.cli import app
from packager.images.slim_label import LABEL
from tests.support import tars
from tests.support.commandline import TINY, Packager
from tests.support.made_layers import base_of, layer_of, write_layout
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


def test_paths_in_options_are_looked_for_in_the_base(tmp_path: Path, packager: Packager) -> None:
    layer = layer_of(tars.tar_of(tars.directory("etc"), tars.file("etc/log.json", b"{}")))
    write_layout(tmp_path / "base", base_of((layer,), architecture="amd64"))
    options = [
        f"--engine-option={name}"
        for name in ("log-config-file=/etc/log.json", "hf-config-path=/gone")
    ]

    packager(
        "build",
        *MODEL,
        "--base",
        "oci:base",
        "--output",
        "oci:image",
        "--record",
        "r",
        *options,
        status=0,
    )

    found = json.loads((tmp_path / "r").read_bytes())["findings"]
    told = [one["hint"] for one in found if one["code"] == "file-not-packaged"]
    assert told == ["the base image lacks it: mount it into the container"]


UNREACHABLE = "127.0.0.1:9/image:1"  # nobody listens there


@pytest.mark.parametrize(
    ("mistake", "status"),
    [
        ((*MODEL, "--instance", "g5.xlarge", "--tp-degree", "2"), 3),
        ((*MODEL, "--max-total-tokens", "9999999"), 3),
        ((*MODEL, "--evaluate", "default"), 2),
        ((*MODEL, "--draft", "./nowhere"), 66),
        (("--model", "./nowhere", "--instance", "local"), 66),
        (("--model", "tests", "--instance", "local"), 65),
        (MODEL, 69),
    ],
)
def test_request_and_model_are_looked_at_before_a_registry(
    mistake: tuple[str, ...], status: int
) -> None:
    for asked in (
        ("--base", UNREACHABLE, "--output", "oci:image"),
        ("--base", UNREACHABLE, "--dry-run"),
        ("--base", "scratch", "--output", UNREACHABLE),
    ):
        assert app.run(["build", *mistake, *asked, "--quiet"]) == status


def test_a_slim_base_of_another_machine_is_refused(tmp_path: Path, packager: Packager) -> None:
    label = json.dumps({"schema": 1, "kinds": ["nvidia"]})
    write_layout(tmp_path / "base", base_of((), config={"Labels": {LABEL: label}}))

    done = packager("build", *MODEL, "--base", "oci:base", "--output", "oci:image", status=2)

    assert "packager base slim --instance" in done.err


def test_a_base_is_looked_at_before_anything_is_written(tmp_path: Path, packager: Packager) -> None:
    layer = layer_of(tars.tar_of(tars.directory("opt", mode=0o1777, uid=1000)), "gzip")
    write_layout(tmp_path / "base", base_of([layer]))
    write_layout(tmp_path / "over", base_of([layer], config={"Volumes": {"/opt/packager": {}}}))
    write_layout(tmp_path / "broken", base_of([replace(layer, diff_id="sha256:" + "0" * 64)]))
    build = ("build", *MODEL, "--output", "oci:image", "--format", "json", "--base")

    assert "diffID" in packager(*build, "oci:broken", status=65).err
    for more in ((), ("--base-files", "skip"), ("--dry-run",)):
        over = packager(*build, "oci:over", *more, status=3)
        assert "declares '/opt/packager' a volume" in over.err
    assert not (tmp_path / "image").exists()
    looked, skipped = (
        json.loads(packager(*build, "oci:base", *more, status=0).out)
        for more in ((), ("--base-files", "skip"))
    )
    notes = [found["message"] for found in looked["findings"] if found["code"] == "base-directory"]
    assert notes == [
        "'/opt' keeps mode 1777 and owner 1000:0 of base image 'oci:base': layers are its own"
    ]
    assert "base-directory" not in {found["code"] for found in skipped["findings"]}
    assert looked["digest"] != skipped["digest"]


def test_a_base_that_moved_since_the_record_is_refused(tmp_path: Path, packager: Packager) -> None:
    recorded = write_base(tmp_path / "base", "amd64", words="recorded")
    packager(
        *("build", *MODEL, "--base", "oci:base", "--output", "oci:image"),
        *("--record", "image.json"),
        status=0,
    )
    moved = write_base(tmp_path / "base", "amd64", words="moved")

    done = packager("build", "--from-record", "image.json", "--output", "oci:again", status=5)

    assert f"'oci:base' is now {moved}, the record was made with {recorded}" in done.err
    assert not (tmp_path / "again").exists()
