"""Layouts that somebody else wrote: their digests are no paths, and their files are files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packager.core.errors import NotFound, OutputFailed, PackagerError, ProtocolFailed
from packager.core.files.atomic import read_regular
from packager.core.image import ImageSpec, Platform, RuntimeConfig
from packager.images.daemon.base import DockerBase
from packager.images.layout.base import LayoutBase, read_documents
from packager.images.oci import scratch, sha256
from packager.images.target import parse_layout_target, parse_target
from packager.optimize.cache.oci import entries_of_layout
from tests.support.cases import cases
from tests.support.made_images import layout_sink
from tests.support.odd_files import directory, pipe, unix_socket

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = b"layer"
CONFIG = json.dumps({"os": "linux", "rootfs": {"diff_ids": [sha256(LAYER)]}}).encode()


def descriptor(data: bytes) -> dict[str, Any]:
    return {"mediaType": MANIFEST, "digest": sha256(data), "size": len(data)}


def manifest(config: object = None) -> bytes:
    document = {
        "schemaVersion": 2,
        "config": config or descriptor(CONFIG),
        "layers": [descriptor(LAYER)],
    }
    return json.dumps(document).encode()


def layout(root: Path, entry: object, *blobs: bytes) -> Path:
    """Write a layout whose index has this entry."""
    place = root / "blobs" / "sha256"
    place.mkdir(parents=True)
    (root / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    for data in (CONFIG, LAYER, *blobs):
        (place / sha256(data).removeprefix("sha256:")).write_bytes(data)
    return root


def read(root: Path) -> object:
    return LayoutBase().facts(parse_layout_target(f"oci:{root}"), Platform())


def test_a_layout_of_another_tool_is_read(tmp_path: Path) -> None:
    good = manifest()

    assert read(layout(tmp_path / "l", descriptor(good), good))


def linked_device(place: Path) -> None:
    place.symlink_to("/dev/zero")


every_kind = pytest.mark.parametrize(
    "make", [pipe, unix_socket, linked_device, directory], ids=lambda make: make.__name__
)


@cases("digest")
@pytest.mark.parametrize("of", ["index", "manifest"])
def test_a_digest_never_becomes_a_path(digest: object, of: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(manifest() if of == "index" else CONFIG)
    entry = {"mediaType": MANIFEST, "digest": digest, "size": 10**6}
    bad = manifest(entry)
    found = (entry,) if of == "index" else (descriptor(bad), bad)

    with pytest.raises(ProtocolFailed, match="broken descriptor: digest is"):
        read(layout(tmp_path / "l", *found))


@every_kind
@pytest.mark.parametrize("which", ["manifest", "config", "index.json"])
def test_what_is_no_file_is_refused_at_once(
    make: Callable[[Path], None], which: str, tmp_path: Path
) -> None:
    good = manifest()
    root = layout(tmp_path / "l", descriptor(good), good)
    digest = sha256(good if which == "manifest" else CONFIG).removeprefix("sha256:")
    place = root / "index.json" if which == "index.json" else root / "blobs" / "sha256" / digest
    place.unlink()
    make(place)
    started = time.process_time()

    with pytest.raises((ProtocolFailed, NotFound)):
        read(root)

    assert time.process_time() - started < 5.0


@every_kind
def test_what_is_no_file_is_never_read(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "place")

    with pytest.raises(OSError, match=r"regular file|No such device|a directory"):
        read_regular(tmp_path / "place", 10)


def test_a_blob_is_read_no_further_than_its_descriptor_says(tmp_path: Path) -> None:
    good = manifest()
    root = layout(tmp_path / "l", {**descriptor(good), "size": len(good) - 1}, good)

    with pytest.raises(ProtocolFailed, match=f"longer than {len(good) - 1} bytes"):
        read(root)


def test_a_huge_index_is_not_swallowed(tmp_path: Path) -> None:
    good = manifest()
    root = layout(tmp_path / "l", descriptor(good), good)
    with (root / "index.json").open("r+b") as file:
        file.truncate(3 * 2**30)

    with pytest.raises(ProtocolFailed, match="longer than 8388608 bytes"):
        read_documents(parse_layout_target(f"oci:{root}"), Platform())


def test_no_more_is_read_than_is_allowed_and_one_byte(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)

    assert read_regular(tmp_path / "file", 10) == b"x" * 11
    assert read_regular(tmp_path / "file", 100) == b"x" * 100


@cases("index")
def test_a_damaged_index_is_refused_before_any_write(index: bytes, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    good = manifest()
    root = layout(tmp_path / "l", descriptor(good), good)
    (root / "index.json").write_bytes(index)
    sink = layout_sink(f"{root}:new")
    nothing = ImageSpec(base=scratch(Platform()), layers=(), runtime=RuntimeConfig(), created="")

    with pytest.raises(OutputFailed, match="is damaged"):
        sink.prepare(nothing)
    sink.abandon()

    assert (root / "index.json").read_bytes() == index
    assert (tmp_path / "secret").exists()
    with pytest.raises(PackagerError) as caught:
        entries_of_layout(parse_target(f"oci:{root}"))
    assert caught.value.exit_code == 76


@pytest.mark.parametrize("found", [None, [], {}, {"Id": 5}, {"Id": "sha256:../../x"}, {"Id": "x"}])
def test_an_id_of_an_engine_never_becomes_another_path(found: object, tmp_path: Path) -> None:
    api = SimpleNamespace(inspect_image=lambda name: found, get_image=lambda name: [])
    base = DockerBase(cache_dir=tmp_path, connect=lambda: SimpleNamespace(api=api))

    with pytest.raises(ProtocolFailed, match="which is not a digest"):
        base.take_out(parse_target("docker:x"))

    assert list(tmp_path.iterdir()) == []
