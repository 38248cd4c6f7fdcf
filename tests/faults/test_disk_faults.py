"""Disks that are full, fail or change under us: nothing half made gets a name."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from packager.core.errors import OutputFailed
from packager.core.image import Blob, ImageSpec
from packager.images.blobs import BlobReader, SourceChanged
from packager.images.digest_index import DigestIndex
from packager.images.tee import write_image
from tests.faults.counters import never
from tests.faults.pushing import REPOSITORY, bench
from tests.support.made_images import image_with, layer_with, layout_sink

SIZE = 3_000_000


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "shard"
    path.write_bytes(os.urandom(SIZE))
    return path


def image_of(shard: Path) -> ImageSpec:
    return image_with(layer_with(shard))


def test_a_disk_that_fills_up_leaves_no_image_and_no_garbage(
    shard: Path, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program takes the space after we have looked how much there is."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1 << 40, 0, 1 << 40))

    with pytest.raises(OutputFailed, match="no space left") as failed:
        write_image(
            image_of(shard),
            [layout_sink(small_disk / "out")],
            reader=BlobReader(),
            index=DigestIndex(tmp_path / "digests.sqlite"),
        )

    assert "free some space" in failed.value.hint
    with never("garbage_left"):
        assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_file_that_changes_while_it_is_pushed_reaches_no_manifest(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    chunks = BlobReader.chunks

    def meddle(reader: BlobReader, blob: Blob) -> object:
        done = 0
        for chunk in chunks(reader, blob):
            if done <= share * blob.size < done + len(chunk) and blob.size == SIZE:
                with shard.open("r+b") as file:
                    file.write(b"!")
            done += len(chunk)
            yield chunk

    monkeypatch.setattr(BlobReader, "chunks", meddle)
    with bench(tmp_path) as at:
        before = len(at.registry.requests("PUT", "/manifests/"))

        pushed = at.push(image_of(shard))

        with never("wrong_bytes"):
            assert isinstance(pushed.error, SourceChanged)
            assert len(at.registry.requests("PUT", "/manifests/")) == before
            assert {digest for name, digest in at.registry.manifests if name == REPOSITORY} == {
                "1",
                at.old,
            }
        at.check_tag(pushed)
