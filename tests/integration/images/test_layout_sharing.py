"""Layouts that share the model's bytes on the disk, and links between layouts."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from packager.core.image import (
    Blob,
    FileRange,
    ImageSpec,
    Inline,
    Layer,
    Platform,
    RuntimeConfig,
    Written,
)
from packager.errors import NotFound, OutputFailed
from packager.images.blobs import BlobReader, SourceChanged
from packager.images.copy import copy_image
from packager.images.digest_index import DigestIndex
from packager.images.layout.blobs import BlobFile, LinkedBlob
from packager.images.layout.sink import LayoutSink
from packager.images.oci import scratch
from packager.images.opened import open_layout
from packager.images.sharing import linkable
from packager.images.tar import TarEntry, make_tar
from packager.images.target import parse_layout_target
from packager.images.tee import write_image
from tests.support import disks
from tests.support.disks import used

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
    content = FileRange(path=str(path), offset=0, length=path.stat().st_size)
    return Layer(role="weights", blob=make_tar([TarEntry(path=f"/m/{path.name}", content=content)]))


def image_of(*layers: Layer) -> ImageSpec:
    return ImageSpec(base=scratch(Platform()), layers=layers, runtime=RuntimeConfig(), created="")


def model_in(directory: Path) -> list[Path]:
    """A large file whose end is no whole block, and a small one."""
    large, small = directory / "large", directory / "small"
    large.write_bytes(os.urandom(SIZE))
    small.write_bytes(b"small")
    return [large, small]


def check_blobs(layout: Path) -> None:
    for blob in (layout / "blobs/sha256").iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name


@pytest.fixture(params=["xfs", "btrfs"])
def sharing_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own that can share extents."""
    with disks.sharing_disk(request.param, tmp_path) as point:
        yield point


def test_a_layout_costs_next_to_no_disk_where_extents_can_be_shared(
    sharing_disk: Path, machine: Machine
) -> None:
    files = model_in(sharing_disk)
    before = used(sharing_disk)

    machine.write(
        image_of(*map(layer, files)), LayoutSink(parse_layout_target(f"oci:{sharing_disk / 'out'}"))
    )

    assert machine.reader.bytes_read == SIZE + len(b"small")  # one read, for the digests
    assert used(sharing_disk) - before < SIZE / 100
    check_blobs(sharing_disk / "out")


def test_a_known_model_is_shared_without_being_read(sharing_disk: Path, machine: Machine) -> None:
    image = image_of(layer(model_in(sharing_disk)[0]))
    first = machine.write(image, LayoutSink(parse_layout_target(f"oci:{sharing_disk / 'one'}")))
    before = used(sharing_disk)

    again = machine.write(image, LayoutSink(parse_layout_target(f"oci:{sharing_disk / 'two'}")))

    assert again.image.digest == first.image.digest
    assert (machine.reader.bytes_read, again.layers_known) == (0, 1)
    assert used(sharing_disk) - before < SIZE / 100
    check_blobs(sharing_disk / "two")


def test_a_model_larger_than_the_free_space_fits_by_sharing(
    sharing_disk: Path, machine: Machine
) -> None:
    large = sharing_disk / "large"
    with large.open("wb") as file:  # holes are shared as bytes are
        file.truncate(700 * MB)
    assert shutil.disk_usage(sharing_disk).free < 600 * MB

    machine.write(
        image_of(layer(large)), LayoutSink(parse_layout_target(f"oci:{sharing_disk / 'out'}"))
    )

    check_blobs(sharing_disk / "out")


def test_an_edit_of_the_model_leaves_the_layout_as_it_was(
    sharing_disk: Path, machine: Machine
) -> None:
    large = model_in(sharing_disk)[0]
    machine.write(
        image_of(layer(large)), LayoutSink(parse_layout_target(f"oci:{sharing_disk / 'out'}"))
    )

    with large.open("r+b") as file:
        file.write(os.urandom(MB))

    check_blobs(sharing_disk / "out")


def test_a_file_that_changes_after_it_was_shared_is_refused(
    sharing_disk: Path, machine: Machine
) -> None:
    large = model_in(sharing_disk)[0]
    (sharing_disk / "blobs").mkdir()
    writer = BlobFile(sharing_disk / "blobs", layer(large).blob, lambda path: None)
    with large.open("r+b") as file:
        file.write(b"edited")

    with pytest.raises(SourceChanged):
        writer.commit("sha256:" + "0" * 64)
    writer.abort()

    assert list((sharing_disk / "blobs").iterdir()) == []


def test_ranges_that_start_in_the_middle_of_a_block_are_copied(
    sharing_disk: Path, machine: Machine
) -> None:
    large = model_in(sharing_disk)[0]
    parts = (
        Inline(b"header"),
        FileRange(path=str(large), offset=0, length=2 * MB),
        Inline(bytes(-(6 + 2 * MB) % 4096)),
        FileRange(path=str(large), offset=8192, length=MB),
        FileRange(path=str(large), offset=77, length=MB),
    )

    machine.write(
        image_of(Layer(role="weights", blob=Blob(parts))),
        LayoutSink(parse_layout_target(f"oci:{sharing_disk / 'out'}")),
    )

    check_blobs(sharing_disk / "out")


# Any file system


def test_the_second_layout_of_a_build_is_names_of_the_first_ones_blobs(
    machine: Machine, tmp_path: Path
) -> None:
    large = model_in(tmp_path)[0]
    one = LayoutSink(parse_layout_target(f"oci:{tmp_path / 'one'}"))
    two = LayoutSink(parse_layout_target(f"oci:{tmp_path / 'two'}"), beside=[one])

    written = machine.write(image_of(layer(large)), one, two)

    name = "blobs/sha256/" + written.layers[0].digest.removeprefix("sha256:")
    assert (tmp_path / "one" / name).samefile(tmp_path / "two" / name)
    assert large.stat().st_nlink == 1  # a file of the user's is never linked to
    check_blobs(tmp_path / "two")


def test_a_copy_between_layouts_writes_no_layer(machine: Machine, tmp_path: Path) -> None:
    machine.write(
        image_of(layer(model_in(tmp_path)[0])),
        LayoutSink(parse_layout_target(f"oci:{tmp_path / 'one'}")),
    )
    target = parse_layout_target(f"oci:{tmp_path / 'two'}")
    sink = LayoutSink(target)
    source = open_layout(parse_layout_target(f"oci:{tmp_path / 'one'}"), Platform())

    def write(image: ImageSpec, sealed: object) -> object:
        return write_image(
            image, [sink], reader=machine.reader, index=machine.index, sealed=sealed
        ), None

    written, _ = copy_image(source, write)  # type: ignore[arg-type]

    name = "blobs/sha256/" + written.layers[0].digest.removeprefix("sha256:")
    assert (tmp_path / "one" / name).samefile(tmp_path / "two" / name)


def test_a_layer_that_an_image_holds_twice_is_linked_twice_at_once(
    machine: Machine, tmp_path: Path
) -> None:
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


def based_image(tmp_path: Path) -> ImageSpec:
    """An image on a base of one layer, which lies in a registry."""
    (tmp_path / "base.tar").write_bytes(b"base layer " * 1000)
    content = FileRange(path=str(tmp_path / "base.tar"), offset=0, length=11_000)
    base = Layer(
        role="base",
        blob=Blob((content,)),
        digest="sha256:" + hashlib.sha256(b"base layer " * 1000).hexdigest(),
        mount_from="registry.example/bases/server",
    )
    note = make_tar([TarEntry(path="/note", content=Inline(b"note"))])
    return image_of(base, Layer(role="config", blob=note))


def test_a_sparse_layout_lacks_the_base_and_says_where_it_is(
    machine: Machine, tmp_path: Path
) -> None:
    image = based_image(tmp_path)
    full = machine.write(image, LayoutSink(parse_layout_target(f"oci:{tmp_path / 'full'}")))

    sparse = machine.write(
        image, LayoutSink(parse_layout_target(f"oci:{tmp_path / 'sparse'}"), sparse_base=True)
    )

    assert sparse.image.digest == full.image.digest
    blobs = {path.name for path in (tmp_path / "sparse/blobs/sha256").iterdir()}
    assert len(blobs) == 3  # our layer, configuration, manifest
    [entry] = json.loads((tmp_path / "sparse/index.json").read_bytes())["manifests"]
    assert entry["annotations"]["dev.packager.sparse-base"] == (
        "registry://registry.example/bases/server"
    )


def test_a_sparse_layout_is_made_whole_by_building_again(machine: Machine, tmp_path: Path) -> None:
    image = based_image(tmp_path)
    machine.write(
        image, LayoutSink(parse_layout_target(f"oci:{tmp_path / 'out'}"), sparse_base=True)
    )

    machine.write(image, LayoutSink(parse_layout_target(f"oci:{tmp_path / 'out'}")))

    assert len(list((tmp_path / "out/blobs/sha256").iterdir())) == 4
    [entry] = json.loads((tmp_path / "out/index.json").read_bytes())["manifests"]
    assert "dev.packager.sparse-base" not in entry["annotations"]


def test_the_base_of_a_sparse_layout_is_read_from_its_registry(
    machine: Machine, tmp_path: Path
) -> None:
    image = based_image(tmp_path)
    machine.write(
        image, LayoutSink(parse_layout_target(f"oci:{tmp_path / 'out'}"), sparse_base=True)
    )

    found = open_layout(parse_layout_target(f"oci:{tmp_path / 'out'}"), Platform())

    [segment] = found.locate(found.image.layers[0].descriptor).segments
    assert segment.url == (  # type: ignore[union-attr]
        f"registry://registry.example/bases/server@{image.layers[0].digest}"
    )
    assert found.mount_from == "registry.example/bases/server"
    [ours] = [found.locate(layer.descriptor) for layer in found.image.layers[1:]]
    assert isinstance(ours.segments[0], FileRange)


def test_a_sparse_layout_on_a_base_of_no_registry_says_what_it_lacks(
    machine: Machine, tmp_path: Path
) -> None:
    image = based_image(tmp_path)
    from dataclasses import replace

    local = replace(image.layers[0], mount_from="")
    base = replace(image.base, reference="embedded:vllm-cpu")
    machine.write(
        replace(image, base=base, layers=(local, image.layers[1])),
        LayoutSink(parse_layout_target(f"oci:{tmp_path / 'out'}"), sparse_base=True),
    )
    found = open_layout(parse_layout_target(f"oci:{tmp_path / 'out'}"), Platform())

    with pytest.raises(NotFound) as missing:
        found.locate(found.image.layers[0].descriptor)

    assert "without its base 'embedded:vllm-cpu'" in missing.value.message
    assert "--sparse-base" in missing.value.hint


def test_a_disk_too_small_is_refused_before_anything_is_written(
    machine: Machine, tmp_path: Path
) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(1 << 43)  # 8 TiB of nothing

    with pytest.raises(OutputFailed, match="are free"):
        machine.write(
            image_of(layer(huge)), LayoutSink(parse_layout_target(f"oci:{tmp_path / 'out'}"))
        )
