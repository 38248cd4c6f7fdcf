"""A sink of another package, as docs/adding-a-sink.md has it."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from tests.support.commandline import TINY, packager_in
from tests.support.documented_packages import stated_count, write_package

PAGE = "adding-a-sink.md"
BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    write_package(PAGE, tmp_path / "site")
    return {"PYTHONPATH": str(tmp_path / "site")}


def test_a_sink_is_as_many_files_as_its_page_says(tmp_path: Path) -> None:
    assert len(write_package(PAGE, tmp_path / "site")) == stated_count(PAGE) == 2


def test_it_is_listed_with_its_package(tmp_path: Path, env: dict[str, str]) -> None:
    listed = packager_in(tmp_path)("list", "outputs", "--format", "json", env=env)

    assert {"name": "tar", "what": "from tar-sink"} in json.loads(listed.out)


def test_a_build_writes_to_it_beside_a_layout(tmp_path: Path, env: dict[str, str]) -> None:
    run = packager_in(tmp_path)

    done = run(*BUILD, "--output", "tar:out.tar", "--output", "oci:out", env=env)

    assert done.status == 0, done.err
    layout, archive = done.out.splitlines()
    assert (layout.partition("@")[2], archive.partition("@")[0]) == (
        archive.partition("@")[2],
        "tar:out.tar",
    )
    assert digests_in(tmp_path / "out.tar") == blobs_of(tmp_path / "out")
    assert [path.name for path in tmp_path.glob(".out.tar*")] == []


def blobs_of(layout: Path) -> set[str]:
    """Return the digests of the image's own blobs; what is attached to it has others."""
    [entry] = json.loads((layout / "index.json").read_bytes())["manifests"]
    digest = entry["digest"].removeprefix("sha256:")
    manifest = json.loads((layout / "blobs/sha256" / digest).read_bytes())
    parts = (manifest["config"], *manifest["layers"])
    return {digest, *(part["digest"].removeprefix("sha256:") for part in parts)}


def digests_in(archive: Path) -> set[str]:
    """Return the digests of all blobs; their names must be the same."""
    with tarfile.open(archive) as opened:
        blobs = [member for member in opened if member.name.startswith("blobs/sha256/")]
        found = {
            member.name: hashlib.file_digest(opened.extractfile(member), "sha256").hexdigest()  # type: ignore[arg-type]
            for member in blobs
        }
    assert all(name.endswith(digest) for name, digest in found.items())
    return set(found.values())


def test_its_errors_are_its_own(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "out.tar").mkdir()

    done = packager_in(tmp_path)(*BUILD, "--output", "tar:out.tar", env=env)

    assert (done.status, done.out) == (74, "")
    assert "out.tar' is a directory" in done.err
