"""Layouts that share the model's bytes on the disk, and links between layouts."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from packager.core.errors import NotFound, OutputFailed
from packager.core.image import Blob, FileRange, ImageSpec, Inline, Layer, Platform, Written
from packager.images.blobs import BlobReader, SourceChanged
from packager.images.copy import copy_image
from packager.images.digest_index import DigestIndex
from packager.images.layout.blobs import BlobFile, LinkedBlob
from packager.images.layout.sink import LayoutSink
from packager.images.opened import open_layout
from packager.images.sharing import linkable
from packager.images.target import parse_layout_target
from packager.images.tee import write_image
from tests.support import disks
from tests.support.disks import used
from tests.support.made_images import (
    blob_in,
    blobs_in,
    check_blobs,
    image_with,
    layer_with,
    layout_sink,
    tar_layer,
)

MB = 1_000_000
SIZE = 48 * MB + 123  # the end is no whole block
HOUR_NS = 3600 * 10**9


class Machine:
    """An index an hour old, and a count of what was read."""

    def __init__(self, root: Path) -> None:
        self.index = DigestIndex(root / "digests.sqlite", clock_ns=lambda: time.time_ns() + HOUR_NS)
        self.reader = BlobReader()

    def write(self, image: ImageSpec, *sinks: LayoutSink) -> Written:
        self.reader.bytes_read = 0
        return write_image(image, sinks, reader=self.reader, index=self.index)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "state")


def layer(path: Path) -> Layer:
    return tar_layer(f"/m/{path.name}", path)


def model_in(directory: Path) -> Path:
    """Write a large file whose end is no whole block."""
    large = directory / "large"
    large.write_bytes(os.urandom(SIZE))
    return large


@pytest.fixture(params=["xfs", "btrfs"])
def sharing_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own that can share extents."""
    with disks.sharing_disk(request.param, tmp_path) as point:
        yield point


def test_a_layout_costs_next_to_no_disk_where_extents_can_be_shared(
    sharing_disk: Path, machine: Machine
) -> None:
    small, out = sharing_disk / "small", sharing_disk / "out"
    small.write_bytes(b"small")
    image = image_with(layer(model_in(sharing_disk)), layer(small))
    before = used(sharing_disk)

    first = machine.write(image, layout_sink(out))

    assert machine.reader.bytes_read == SIZE + len(b"small")  # one read, for the digests
    assert used(sharing_disk) - before < SIZE / 100
    check_blobs(out)

    again = machine.write(image, layout_sink(sharing_disk / "two"))

    assert again.image.digest == first.image.digest
    known = (machine.reader.bytes_read, again.layers_known)
    assert known == (len(b"small"), 1)  # what is small is hashed again
    assert used(sharing_disk) - before < SIZE / 100
    check_blobs(sharing_disk / "two")


@pytest.mark.extended
def test_a_model_beyond_the_free_space_is_shared(sharing_disk: Path, machine: Machine) -> None:
    large = sharing_disk / "large"
    with large.open("wb") as file:  # holes are shared as bytes are
        file.truncate(700 * MB)
    assert shutil.disk_usage(sharing_disk).free < 600 * MB

    machine.write(image_with(layer(large)), layout_sink(sharing_disk / "out"))

    check_blobs(sharing_disk / "out")


def test_an_edit_of_the_model_leaves_the_layout(sharing_disk: Path, machine: Machine) -> None:
    large = model_in(sharing_disk)
    machine.write(image_with(layer(large)), layout_sink(sharing_disk / "out"))

    with large.open("r+b") as file:
        file.write(os.urandom(MB))

    check_blobs(sharing_disk / "out")


def test_a_file_that_changes_after_it_was_shared_is_refused(sharing_disk: Path) -> None:
    large = model_in(sharing_disk)
    (sharing_disk / "blobs").mkdir()
    writer = BlobFile(sharing_disk / "blobs", layer(large).blob, lambda path: None)
    with large.open("r+b") as file:
        file.write(b"edited")

    with pytest.raises(SourceChanged):
        writer.commit("sha256:" + "0" * 64)
    writer.abort()

    assert list((sharing_disk / "blobs").iterdir()) == []


def test_ranges_within_blocks_are_copied(sharing_disk: Path, machine: Machine) -> None:
    path = str(model_in(sharing_disk))
    parts = (
        Inline(b"header"),
        FileRange(path=path, offset=0, length=2 * MB),
        Inline(bytes(-(6 + 2 * MB) % 4096)),
        FileRange(path=path, offset=8192, length=MB),
        FileRange(path=path, offset=77, length=MB),
    )

    machine.write(image_with(layer_with(Blob(parts))), layout_sink(sharing_disk / "out"))

    check_blobs(sharing_disk / "out")


# Any file system


def test_a_second_layout_is_names_of_the_first_ones_blobs(machine: Machine, tmp_path: Path) -> None:
    large, place = model_in(tmp_path), tmp_path / "two"
    one = layout_sink(tmp_path / "one")

    written = machine.write(image_with(layer(large)), one, layout_sink(place, beside=[one]))

    digest = written.layers[0].digest
    assert blob_in(tmp_path / "one", digest).samefile(blob_in(place, digest))
    assert large.stat().st_nlink == 1  # a file of the user's is never linked to
    check_blobs(place)


def test_a_copy_between_layouts_writes_no_layer(machine: Machine, tmp_path: Path) -> None:
    machine.write(image_with(layer(model_in(tmp_path))), layout_sink(tmp_path / "one"))
    sink = layout_sink(tmp_path / "two")
    source = open_layout(parse_layout_target(f"oci:{tmp_path / 'one'}"), Platform())

    def write(image: ImageSpec, sealed: object) -> object:
        return write_image(
            image, [sink], reader=machine.reader, index=machine.index, sealed=sealed
        ), None

    written, _ = copy_image(source, write)  # type: ignore[arg-type]

    digest = written.layers[0].digest
    assert blob_in(tmp_path / "one", digest).samefile(blob_in(tmp_path / "two", digest))


def test_a_layer_may_be_linked_many_times_at_once(machine: Machine, tmp_path: Path) -> None:
    place = tmp_path / "one/blobs/sha256"
    (tmp_path / "two").mkdir()
    place.mkdir(parents=True)
    digest = hashlib.sha256(b"layer").hexdigest()
    (place / digest).write_bytes(b"layer")
    committed: list[Path] = []
    writer = LinkedBlob(tmp_path / "two", lambda name: place / digest, committed.append)

    for _ in range(20):
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(writer.commit, f"sha256:{digest}") for _ in range(8)]:
                done.result()

    assert [path.name for path in (tmp_path / "two").iterdir()] == [digest]


@pytest.mark.parametrize("flaw", ["other name", "writable by others", "no layout", "a link"])
def test_only_blobs_that_nobody_changes_are_linked(tmp_path: Path, flaw: str) -> None:
    digest = hashlib.sha256(b"blob").hexdigest()
    blobs = tmp_path / "blobs/sha256"
    blobs.mkdir(parents=True)
    place = blobs / ("x" if flaw == "other name" else digest)
    if flaw == "a link":
        (tmp_path / "elsewhere").write_bytes(b"blob")
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.write_bytes(b"blob")
        place.chmod(0o666 if flaw == "writable by others" else 0o644)
    if flaw != "no layout":
        (tmp_path / "oci-layout").write_text("{}")

    blob = Blob((FileRange(path=str(place), offset=0, length=4),))

    assert linkable(blob, f"sha256:{digest}") is None


# Layouts without their base

BASE = b"base layer " * 1000


def based_image(mount_from: str = "registry.example/bases/server") -> ImageSpec:
    """An image on a base of one layer, which lies in a registry."""
    digest = f"sha256:{hashlib.sha256(BASE).hexdigest()}"
    base = layer_with(BASE, role="base", digest=digest, mount_from=mount_from)
    return image_with(base, tar_layer("/note", b"note", role="config"))


def noted(layout: Path) -> dict[str, str]:
    """Return the annotations of the only image in a layout."""
    [entry] = json.loads((layout / "index.json").read_bytes())["manifests"]
    found: dict[str, str] = entry["annotations"]
    return found


def test_a_sparse_layout_says_where_its_base_is(machine: Machine, tmp_path: Path) -> None:
    image, out = based_image(), tmp_path / "out"
    full = machine.write(image, layout_sink(tmp_path / "full"))

    sparse = machine.write(image, layout_sink(out, sparse_base=True))

    assert sparse.image.digest == full.image.digest
    assert len(blobs_in(out)) == 3  # our layer, configuration, manifest
    place = "registry://registry.example/bases/server"
    assert noted(out)["dev.packager.sparse-base"] == place
    found = open_layout(parse_layout_target(f"oci:{out}"), Platform())
    [segment] = found.locate(found.image.layers[0].descriptor).segments
    assert segment.url == f"{place}@{image.layers[0].digest}"  # type: ignore[union-attr]
    assert found.mount_from == "registry.example/bases/server"
    [ours] = [found.locate(layer.descriptor) for layer in found.image.layers[1:]]
    assert isinstance(ours.segments[0], FileRange)


def test_a_sparse_layout_is_made_whole_by_building_again(machine: Machine, tmp_path: Path) -> None:
    for is_sparse in (True, False):
        machine.write(based_image(), layout_sink(tmp_path / "out", sparse_base=is_sparse))

    assert len(blobs_in(tmp_path / "out")) == 4
    assert "dev.packager.sparse-base" not in noted(tmp_path / "out")


def test_a_sparse_layout_says_which_base_it_lacks(machine: Machine, tmp_path: Path) -> None:
    image = based_image(mount_from="")
    image = replace(image, base=replace(image.base, reference="embedded:vllm-cpu"))
    machine.write(image, layout_sink(tmp_path / "out", sparse_base=True))
    found = open_layout(parse_layout_target(f"oci:{tmp_path / 'out'}"), Platform())

    with pytest.raises(NotFound) as missing:
        found.locate(found.image.layers[0].descriptor)

    assert "without its base 'embedded:vllm-cpu'" in missing.value.message
    assert "--sparse-base" in missing.value.hint


def test_a_disk_too_small_is_refused_first(machine: Machine, tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(1 << 43)  # 8 TiB of nothing

    with pytest.raises(OutputFailed, match="are free"):
        machine.write(image_with(layer(huge)), layout_sink(tmp_path / "out"))
