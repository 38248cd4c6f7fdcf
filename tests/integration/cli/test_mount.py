"""`packager node-cache`, `packager mount` and `packager unmount` on tiny-llama's image."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.addons.nodes.mounts.mounts import check_machine
from packager.addons.nodes.mounts.syscalls import unmount
from packager.addons.nodes.mounts.table import read_mounts
from packager.addons.nodes.node_cache.fill import FillOptions, fill_node_cache
from packager.addons.nodes.wiring.node_caches import node_image_services_for
from packager.cli.wiring.settings import Settings, parse_output
from packager.core.errors import PackagerError
from packager.core.image import Platform
from tests.conftest import unavailable
from tests.support.cases import cases
from tests.support.commandline import TINY, Packager, packager_in
from tests.support.doubles.registry import FakeRegistry
from tests.support.places import files_below, sha256_in
from tests.support.written_layouts import WrittenLayout, files_in

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tiny")
    packager_in(place)(*BUILD, "--output", "oci:out", status=0)
    return place / "out"


@pytest.fixture
def layout(built: Path, tmp_path: Path) -> Path:
    """tiny-llama's image in the layout `out`."""
    return shutil.copytree(built, tmp_path / "out")


@pytest.fixture
def registry(packager: Packager, layout: Path) -> Iterator[FakeRegistry]:
    """A registry that has the image as `tiny:1`."""
    with FakeRegistry() as served:
        packager("push", "oci:out", f"{served.host}/tiny:1", "--quiet", status=0)
        yield served


@pytest.fixture
def mountable(tmp_path: Path) -> Iterator[Path]:
    """An empty directory `mnt`, upon which nothing is left mounted."""
    try:
        check_machine("mount")
    except PackagerError as error:
        unavailable(f"a machine that mounts EROFS: {error.message}")
    place = tmp_path / "mnt"
    place.mkdir()
    yield place
    while any(one.directory == str(place) for one in read_mounts()):
        unmount(str(place))


def said_by_tars(layout: Path) -> dict[str, tuple[int, str]]:
    """Mode and digest of each file that the image's tars hold."""
    return {
        name: (mode, hashlib.sha256(content).hexdigest())
        for name, (mode, content) in files_in(layers_of(layout)).items()
    }


def layers_of(layout: Path) -> list[Path]:
    return WrittenLayout(layout).layers


def shown_at(place: Path) -> dict[str, tuple[int, str]]:
    return files_below(place, lambda path: (path.stat().st_mode & 0o7777, sha256_in(path)))


def test_every_mounted_file_is_its_tars(packager: Packager, layout: Path, mountable: Path) -> None:
    done = packager("mount", "oci:out", "mnt", "--quiet")

    assert (done.status, done.out) == (0, f"{mountable}\n"), done.err
    assert shown_at(mountable) == said_by_tars(layout)
    assert len(shown_at(mountable)) > 10

    done = packager("unmount", "mnt")
    assert (done.status, done.out) == (0, f"{mountable}\n"), done.err
    assert shown_at(mountable) == {}


def test_mounted_models(packager: Packager, layout: Path, mountable: Path, tmp_path: Path) -> None:
    """packager finds, checks and packages it: into the very same layers."""
    packager("mount", "oci:out", "mnt", "--quiet")

    model = str(mountable / "opt/packager/model")
    packager(
        *("build", "--model", model, "--instance", "local", "--base", "scratch", "--quiet"),
        *("--output", "oci:again"),
        status=0,
    )

    weights = [path.name for path in layers_of(layout)][:3]
    assert [path.name for path in layers_of(tmp_path / "again")][:3] == weights


def test_a_node_cache_filled_from_a_registry_is_mounted(
    packager: Packager, layout: Path, registry: FakeRegistry, mountable: Path, tmp_path: Path
) -> None:
    name = f"{registry.host}/tiny:1"
    done = packager("node-cache", name, "cache", "--dm-verity", "--format", "json", status=0)
    report = json.loads(done.out)
    read = len(registry.requests("GET", "/blobs/"))
    again = json.loads(packager("node-cache", name, "cache", "--format", "json").out)

    done = packager("mount", name, "mnt", "--node-cache", "cache", "--quiet", status=0)

    assert {layer["state"] for layer in report["layers"]} == {"made"}
    assert report["bytes_read"] == sum(path.stat().st_size for path in layers_of(layout))
    assert read == 1 + len(layers_of(layout))  # the configuration, and each layer once
    assert {layer["state"] for layer in again["layers"]} == {"kept"}
    assert report["directory"] == str(tmp_path / "cache")
    for layer in report["layers"]:
        digest = layer["diff_id"].removeprefix("sha256:")
        assert layer["path"] == str(tmp_path / "cache/sha256" / digest[:2] / f"{digest}.erofs")
    assert shown_at(mountable) == said_by_tars(layout)


def test_entries_are_the_file_systems_of_a_build(packager: Packager, tmp_path: Path) -> None:
    packager(*BUILD, "--layer-format", "erofs", "--output", "oci:both", status=0)
    written = {path.name for path in (tmp_path / "both/blobs/sha256").iterdir()}

    packager("node-cache", "oci:both", "cache", "--quiet", status=0)

    entries = list((tmp_path / "cache").rglob("*.erofs"))
    assert len(entries) == 5
    assert {hashlib.sha256(entry.read_bytes()).hexdigest() for entry in entries} <= written


def test_wrong_bytes_fill_none(packager: Packager, registry: FakeRegistry, tmp_path: Path) -> None:
    registry.quirks.damage = True
    done = packager("node-cache", f"{registry.host}/tiny:1", "cache")

    assert (done.status, done.out) == (76, ""), done.err
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_connection_that_breaks_within_a_layer_is_taken_up_again(
    packager: Packager, layout: Path, registry: FakeRegistry, tmp_path: Path
) -> None:
    name = f"{registry.host}/tiny:1"
    tools = node_image_services_for(Settings())
    image = tools.open(parse_output(name), Platform())
    registry.quirks.blob_cuts = 3

    fill_node_cache(image, tmp_path / "cache", tools.reader, FillOptions())

    assert registry.quirks.blob_cuts == 0
    assert len(list((tmp_path / "cache").rglob("*.erofs"))) == len(layers_of(layout))


def test_the_list_has_what_is_mounted(packager: Packager, layout: Path, mountable: Path) -> None:
    packager("mount", "oci:out", "mnt", "--quiet", "--layers", "weights")

    (found,) = json.loads(packager("mount", "--list", "--format", "json").out)
    table = packager("mount", "--list")
    again = packager("mount", "oci:out", "mnt", "--layers", "weights", status=0)

    assert (found["directory"], found["image"], found["layers"], found["proven"]) == (
        str(mountable), "oci:out", "weights", True,
    )  # fmt: skip
    assert table.out.splitlines()[0].split() == [
        "directory", "image", "digest", "layers", "proven",
    ]  # fmt: skip
    assert str(mountable) in table.out
    assert "shows this image already" in again.err


@cases("what_cannot_be_done_is_told")
def test_what_cannot_be_done_is_told(
    packager: Packager,
    layout: Path,
    mountable: Path,
    arguments: tuple[str, ...],
    status: int,
    told: str,
) -> None:
    done = packager(*arguments)

    assert (done.status, done.out) == (status, ""), done.err
    assert told in done.err
    assert "hint:" in done.err
