"""Files out of the artifact cache: whoever takes them compares them with their digest."""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import CachedFileChanged, NotReproduced
from packager.core.events import ignore
from packager.core.image import Blob, Compression, FileRange, ImageSpec, Inline, Layer, Written
from packager.core.model import ModelFile
from packager.core.ports import BlobWriter
from packager.core.recipe import Step, StepInput
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.tee import write_image
from packager.optimize.drafts.train.head_files import write_head
from packager.optimize.steps.protocol import lay_out
from tests.support.made_images import blob_in, check_blobs, image_with, layout_sink, tar_layer
from tests.unit.images.test_write_image import FakeSink

MIB = 1024 * 1024
HOUR_NS = 3600 * 10**9


def cached(path: Path, size: int = 3 * MIB + 77) -> FileRange:
    """Write a file as the cache hands it out, and say what it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = random.Random(size).randbytes(size)
    path.write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    return FileRange(path=str(path), offset=0, length=size, sha256=sha256)


def flip(path: str | Path, at: int = -1) -> None:
    """Flip a bit in place, with size and mtime as they were."""
    place = Path(path)
    status = place.stat()
    data = bytearray(place.read_bytes())
    data[at] ^= 1
    with place.open("r+b") as file:
        file.write(data)
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))


def parts(whole: FileRange, *cuts: int) -> list[FileRange]:
    bounds = [0, *cuts, whole.length]
    return [replace(whole, offset=start, length=stop - start) for start, stop in pairwise(bounds)]


@pytest.mark.parametrize("at", [0, MIB, 2 * MIB - 1, -1], ids=["first", "second", "end", "last"])
def test_a_whole_file_is_compared_before_its_last_piece_is_given(tmp_path: Path, at: int) -> None:
    content = cached(tmp_path / "a")
    assert BlobReader().read(Blob((content,))) == (tmp_path / "a").read_bytes()
    flip(content.path, at)
    given = 0

    with pytest.raises(CachedFileChanged, match="holds other bytes than were published"):
        for chunk in BlobReader().chunks(Blob((content,))):
            given += len(chunk)

    assert given < content.length


@pytest.mark.parametrize("flipped", ["read", "never read"])
def test_a_part_is_given_only_of_a_file_that_is_right(tmp_path: Path, flipped: str) -> None:
    """Shards of one file have headers of our own: of the original's nobody reads all."""
    content = cached(tmp_path / "a")
    part = parts(content, 100, 5000)[1]
    assert BlobReader().read(Blob((part,))) == (tmp_path / "a").read_bytes()[100:5000]
    flip(content.path, 200 if flipped == "read" else 50)

    with pytest.raises(CachedFileChanged):
        next(BlobReader().chunks(Blob((part,))))


def test_parts_of_one_file_take_one_comparison(tmp_path: Path) -> None:
    content = cached(tmp_path / "a")
    reader = BlobReader()

    shards = parts(content, 7, MIB, MIB + 9)
    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(lambda one: reader.read(Blob((one,))), shards))

    assert b"".join(given) == (tmp_path / "a").read_bytes()
    assert reader.bytes_read == 2 * content.length


def test_a_part_is_compared_again_when_the_file_was_replaced(tmp_path: Path) -> None:
    content = cached(tmp_path / "a")
    reader = BlobReader()
    one, other = parts(content, 100)
    reader.read(Blob((one,)))
    flip(content.path, 5000)
    os.utime(content.path, (1, 1))

    with pytest.raises(CachedFileChanged):
        reader.read(Blob((other,)))


@pytest.mark.parametrize("size", [0, 1], ids=["empty", "grown"])
def test_an_empty_file_is_compared_too(tmp_path: Path, size: int) -> None:
    content = cached(tmp_path / "a", 0)
    (tmp_path / "a").write_bytes(b"x" * size)

    if size:
        with pytest.raises(CachedFileChanged):
            BlobReader().read(Blob((content,)))
    else:
        assert BlobReader().read(Blob((content,))) == b""


@pytest.mark.parametrize("size", [0, 1, MIB, 3 * MIB + 76], ids=str)
def test_a_file_that_became_shorter_is_not_taken_for_a_part(tmp_path: Path, size: int) -> None:
    content = cached(tmp_path / "a")
    os.truncate(content.path, size)

    with pytest.raises(CachedFileChanged):
        BlobReader().read(Blob((content,)))


def test_a_disk_that_does_not_read_a_cached_file_is_no_fault_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = cached(tmp_path / "a")

    def broken(*_: object, **__: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "open", broken)

    with pytest.raises(CachedFileChanged, match="cannot be read: input/output error"):
        BlobReader().read(Blob((content,)))


def image_of(*contents: FileRange, compression: Compression = "none") -> ImageSpec:
    layers = (
        tar_layer(f"/m/{number}", content, compression=compression)
        for number, content in enumerate(contents)
    )
    return image_with(*layers)


def write(image: ImageSpec, out: Path, state: Path) -> Written:
    index = DigestIndex(state / "digests", clock_ns=lambda: time.time_ns() + HOUR_NS)
    return write_image(image, [layout_sink(out)], reader=BlobReader(), index=index)


@pytest.mark.parametrize("compression", ["none", "zstd", "auto"])
@pytest.mark.parametrize("known", [True, False], ids=["index knows it", "index is new"])
def test_an_image_never_holds_other_bytes_than_the_cache_published(
    tmp_path: Path, compression: Compression, known: bool
) -> None:
    content = cached(tmp_path / "a")
    write(image_of(content), tmp_path / "before", tmp_path / "state")
    flip(content.path)
    state = tmp_path / ("state" if known else "other")

    with pytest.raises(CachedFileChanged):
        write(image_of(content, compression=compression), tmp_path / "out", state)

    assert not (tmp_path / "out").exists()


def test_an_image_that_needs_no_bytes_of_a_damaged_file_has_the_right_ones(tmp_path: Path) -> None:
    content = cached(tmp_path / "a")
    first = write(image_of(content), tmp_path / "out", tmp_path / "state")
    flip(content.path)

    again = write(image_of(content), tmp_path / "out", tmp_path / "state")

    assert again.image.digest == first.image.digest
    check_blobs(tmp_path / "out")


def test_shards_of_a_damaged_file_are_not_written(tmp_path: Path) -> None:
    content = cached(tmp_path / "a")
    shards = (
        tar_layer(f"/m/{number}", Blob((Inline(b"header"), part)))
        for number, part in enumerate(parts(content, 500, MIB)[1:])
    )
    flip(content.path, 3)  # in the header that the shards have not

    with pytest.raises(CachedFileChanged):
        write(image_with(*shards), tmp_path / "out", tmp_path / "state")


def test_a_layout_can_be_written_to_after_a_damaged_file_was_replaced(tmp_path: Path) -> None:
    """A build tries again with the same outputs, once the cache is mended."""
    content, other = cached(tmp_path / "a"), cached(tmp_path / "b", MIB)
    flip(content.path)
    sink = layout_sink(tmp_path / "out")
    index = DigestIndex(tmp_path / "state/digests")
    image = image_of(other, content)
    with pytest.raises(CachedFileChanged):
        write_image(image, [sink], reader=BlobReader(), index=index)
    flip(content.path)

    write_image(image, [sink], reader=BlobReader(), index=index)

    assert (tmp_path / "out/index.json").is_file()
    check_blobs(tmp_path / "out")


def test_a_second_try_leaves_the_blobs_that_others_wrote_after_the_first(tmp_path: Path) -> None:
    out, state = tmp_path / "out", tmp_path / "state"
    write(image_of(cached(tmp_path / "a", 1000)), out, state)
    image = image_of(cached(tmp_path / "b", 2000))
    layer = write(image, tmp_path / "elsewhere", state).layers[0].digest
    sink, index = layout_sink(out), DigestIndex(state / "digests")
    place = blob_in(out, layer)

    for _ in range(2):
        with pytest.raises(NotReproduced):
            write_image(
                image, [sink], reader=BlobReader(), index=index, expect_digests=("sha256:another",)
            )
        if not place.exists():  # what the first try wrote is gone, and another program comes
            place.write_bytes(blob_in(tmp_path / "elsewhere", layer).read_bytes())
            continue
        return
    pytest.fail("the second try removed what it had not written")


class SharingSink(FakeSink, BlobWriter):
    """An output on a file system that shares extents: it has all bytes before one is written."""

    complete = True

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[str] = []
        self.aborted = 0

    def writer(self, layer: Layer) -> Any:
        self.opened += 1
        return self

    def write(self, chunk: memoryview) -> None:
        """Need no bytes."""

    def commit(self, digest: str) -> None:
        self.committed.append(digest)

    def abort(self) -> None:
        self.aborted += 1


def test_shared_extents_of_a_cached_file_are_compared_though_nothing_is_written(
    tmp_path: Path,
) -> None:
    """The index knows such a file by its digest, and nothing of the bytes on the disk."""
    content = cached(tmp_path / "a")
    write(image_of(content), tmp_path / "before", tmp_path / "state")
    flip(content.path)
    sink = SharingSink()
    index = DigestIndex(tmp_path / "state/digests")

    with pytest.raises(CachedFileChanged):
        write_image(image_of(content), [sink], reader=BlobReader(), index=index)  # type: ignore[list-item]

    assert (sink.opened, sink.committed) == (1, [])
    assert sink.aborted >= 1


def in_step(tmp_path: Path, content: FileRange | Blob) -> None:
    (tmp_path / "place").mkdir()
    file = ModelFile(path="model.safetensors", role="weights", content=content)
    step = Step(
        name="evaluate", tool="t", gives="quality", inputs={"model": StepInput(files=(file,))}
    )
    lay_out(step, tmp_path / "place", BlobReader().chunks, ignore)


def in_head(tmp_path: Path, content: FileRange | Blob) -> None:
    head = ModelFile(path="model.safetensors", role="weights", content=content)
    write_head([head], tmp_path / "h")


Take = Callable[[Path, FileRange], None]
TAKERS: Iterable[Take] = (in_step, in_head)


@pytest.mark.parametrize("take", TAKERS, ids=lambda take: take.__name__)
def test_no_step_and_no_user_is_given_a_damaged_file(tmp_path: Path, take: Take) -> None:
    content = cached(tmp_path / "a")
    flip(content.path)

    with pytest.raises(CachedFileChanged):
        take(tmp_path, content)

    assert not (tmp_path / "h").exists()
