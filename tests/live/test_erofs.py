"""EROFS file systems of layers: clean for fsck.erofs, and equal to their tars in the kernel."""

from __future__ import annotations

import hashlib
import json
import os
import random
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from packager.core.image import Blob, FileRange, Inline, Segment
from packager.images.erofs.metadata import make_blob, make_index
from packager.images.erofs.scan import scan_blob
from packager.images.tar import TarEntry, make_tar
from tests.live.building import build
from tests.live.image_tools import inspected, skopeo
from tests.support.commandline import TINY, Packager
from tests.support.erofs_mounts import (
    forms_of,
    in_mount,
    in_tar,
    is_clean,
    mounted,
    mounts_files,
    need_mounts,
    overlay,
)
from tests.support.tars import (
    Member,
    directory,
    entry,
    file,
    hard_link,
    header,
    pax_records,
    symlink,
    tar_of,
)
from tests.support.written_layouts import WrittenLayout

pytestmark = pytest.mark.live

GIB = 2**30
EROFS = ("--layer-format", "erofs", "--format", "json")


@pytest.fixture(autouse=True)
def mounts() -> None:
    need_mounts()


def write(place: Path, *members: Member, format: int = tarfile.GNU_FORMAT) -> Path:
    path = place / "layer.tar"
    path.write_bytes(tar_of(*members, format=format))
    return path


def every_mount(tar: Path, place: Path) -> Iterator[Path]:
    """Yield the layer's file system in each form, mounted in each way that this kernel has."""
    blob, index = forms_of(tar, place)
    for loops in (True, False) if mounts_files() else (True,):
        with mounted(blob, place / "mount", loops=loops) as root:
            yield root
        with mounted(index, place / "mount", device=tar, loops=loops) as root:
            yield root


def check(tar: Path, place: Path) -> None:
    """Hold every file of every mount against the tar: kind, mode, owner, time, content."""
    expected = in_tar(tar)
    for root in every_mount(tar, place):
        found = in_mount(root)
        assert found.keys() - expected.keys() == _implied(expected)
        assert {path: found[path] for path in expected} == expected


def _implied(paths: dict[str, tuple[object, ...]]) -> set[str]:
    """Directories that have no entry of their own."""
    return {
        str(parent) for path in paths for parent in Path(path).parents if str(parent) != "."
    } - paths.keys()


def test_layers_of_a_real_build(packager: Packager, tmp_path: Path) -> None:
    build(packager, "oci:image")
    sizes = []
    for number, tar in enumerate(WrittenLayout(tmp_path / "image").layers):
        place = tmp_path / str(number)
        place.mkdir()
        check(tar, place)
        blob = place / "blob.erofs"
        sizes.append(1 << blob.read_bytes()[1024 + 12])
        assert sizes[-1] == 512 or is_clean(blob)  # fsck.erofs 1.5 knows no other size
    assert sizes[0] == 4096  # the weights


def test_everything_that_a_layer_can_hold(tmp_path: Path) -> None:
    members = [
        directory("./", mode=0o711),
        file("x" * 255, b"1", uid=70_000, gid=3, mode=0o4711, mtime=1_700_000_000),
        file("y" * 200 + "/" + "z" * 255, b"22"),
        file("empty"),
        file("block", b"b" * 512), file("page", b"p" * 4096), file("more", b"m" * 4097),
        *(file("/".join(["deep"] * 300), b"down"), symlink("relative", "../x", mode=0o777)),
        symlink("long", "t" * 4000, mode=0o777),
        file("a", b"name"), hard_link("b", "a"), hard_link("deep/c", "a"),
        entry("null", tarfile.CHRTYPE, devmajor=1, devminor=3, mode=0o666),
        entry("disk", tarfile.BLKTYPE, devmajor=259, devminor=70_000),
        entry("pipe", tarfile.FIFOTYPE),
        file("twice", b"old"), file("twice", b"new one"),
    ]  # fmt: skip
    tar = write(tmp_path, *members)

    check(tar, tmp_path)
    for root in every_mount(tar, tmp_path):
        assert (root / "a").stat().st_nlink == 3
        assert (root / "a").stat().st_ino == (root / "deep/c").stat().st_ino
        assert (root / "deep").stat().st_nlink == 3
        assert root.stat().st_mode & 0o7777 == 0o711
        assert (root / "relative").lstat().st_ino != 0


def test_an_aligned_layer_is_clean(tmp_path: Path) -> None:
    content = random.Random(2).randbytes(1_000_000)
    tar = tmp_path / "layer.tar"
    names = ("model/" + "n" * 255, "model/b", "other/c")
    blob = make_tar([TarEntry(path=f"/{name}", content=Inline(content)) for name in names])
    tar.write_bytes(b"".join(one.data for one in blob.segments if isinstance(one, Inline)))

    check(tar, tmp_path)
    assert is_clean(tmp_path / "blob.erofs")


def test_extended_attributes_and_parts_of_seconds(tmp_path: Path) -> None:
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    tar = tmp_path / "layer.tar"
    records = [
        ("SCHILY.xattr.user.note", b"n" * 5000),
        ("SCHILY.xattr.security.capability", capability),
        ("mtime", b"1700000000.123456789"),
    ]
    tar.write_bytes(pax_records(records) + header() + bytes(1024))

    for root in every_mount(tar, tmp_path):
        path = root / "a"
        assert os.getxattr(path, "user.note") == b"n" * 5000
        assert os.getxattr(path, "security.capability") == capability
        assert path.stat().st_mtime_ns == 1_700_000_000_123_456_789


def holes(place: Path, *sizes: int) -> Blob:
    """Describe a layer of ours with files of holes; a mark lies at the end of each."""
    entries = []
    for number, size in enumerate(sizes):
        source = place / f"{number:04d}"
        with source.open("wb") as out:
            out.truncate(size)
        part = FileRange(path=str(source), offset=0, length=size)
        entries.append(TarEntry(path=f"/m/{number}", content=part))
    return make_tar(entries)


def write_holes(path: Path, *segments: Segment) -> Path:
    with path.open("wb") as out:
        for segment in segments:
            if isinstance(segment, FileRange):
                out.seek(segment.length - 16, os.SEEK_CUR)
                out.write(b"the last of " + segment.path[-4:].encode())
            elif isinstance(segment, Inline):
                out.write(segment.data)
    return path


def last_of(path: Path) -> bytes:
    with path.open("rb") as content:
        content.seek(-16, os.SEEK_END)
        return content.read()


def test_files_over_4_gib_are_whole(tmp_path: Path) -> None:
    blob = holes(tmp_path, 4 * GIB + 4097, 5 * GIB)
    made = make_blob(scan_blob(blob))
    path = write_holes(
        tmp_path / "blob.erofs", Inline(made.head), *blob.segments, Inline(made.tail)
    )

    assert made.block_size == 4096
    assert is_clean(path)
    with mounted(path, tmp_path / "mount", loops=True) as root:
        assert [(root / "m" / name).stat().st_size for name in "01"] == [4 * GIB + 4097, 5 * GIB]
        assert last_of(root / "m/0") == b"the last of 0000"
        assert last_of(root / "m/1") == b"the last of 0001"


def test_an_index_reaches_all_of_64_gib(tmp_path: Path) -> None:
    blob = holes(tmp_path, *[8 * GIB] * 7, 8 * GIB + 1)
    tar = write_holes(tmp_path / "layer.tar", *blob.segments)
    index = tmp_path / "index"
    index.write_bytes(make_index(scan_blob(blob)))

    for loops in (True, False) if mounts_files() else (True,):
        with mounted(index, tmp_path / "mount", device=tar, loops=loops) as root:
            sizes = [(root / f"m/{number}").stat().st_size for number in range(8)]
            assert sizes == [8 * GIB] * 7 + [8 * GIB + 1]
            for number in range(8):
                assert last_of(root / f"m/{number}") == b"the last of %04d" % number
                with (root / f"m/{number}").open("rb") as content:
                    content.seek(3 * GIB)
                    assert content.read(65536) == bytes(65536)


def test_other_tools_take_the_plain_form_and_a_registry_keeps_both(
    packager: Packager, registry: str, engine: str, tmp_path: Path
) -> None:
    import docker

    target = f"{registry}/forms/tiny:1"
    record = json.loads(build(packager, target, *EROFS).out)
    source = f"docker://{target}"
    copy = ("copy", "--preserve-digests", "--src-tls-verify=false")

    skopeo(*copy, source, f"oci:{tmp_path}/one:1")
    skopeo(*copy, "--all", "--dest-tls-verify=false", source, f"docker://{registry}/forms/copy:1")
    raw = inspected(f"docker://{registry}/forms/copy:1", raw=True)
    client = docker.DockerClient(base_url=engine)
    pulled = client.images.pull(f"{registry}/forms/tiny", tag="1")
    try:
        assert inspected(source)["Layers"] == [layer["digest"] for layer in record["layers"]]
        one = json.loads((tmp_path / "one/index.json").read_text())["manifests"]
        assert [entry["digest"] for entry in one] == [record["plain_digest"]]
        assert hashlib.sha256(raw.encode()).hexdigest() == record["digest"][7:]
        assert pulled.attrs["RootFS"]["Layers"] == [layer["digest"] for layer in record["layers"]]
        assert pulled.id == record["config_digest"]
    finally:
        client.images.remove(pulled.id, force=True)
    second = json.loads(raw)["manifests"][1]["digest"]
    manifest = json.loads(inspected(f"docker://{registry}/forms/copy@{second}", raw=True))
    assert [layer["digest"] for layer in manifest["layers"]] == [
        layer["erofs"] for layer in record["layers"]
    ]


@pytest.mark.capability("mount")
def test_the_layers_of_the_second_form_are_mounted_as_the_whole_model(
    packager: Packager, tmp_path: Path
) -> None:
    built = build(packager, "oci:image", *EROFS)
    layers = [layer["erofs"] for layer in json.loads(built.out)["layers"]]

    with ExitStack() as stack:
        roots = [
            stack.enter_context(
                mounted(
                    tmp_path / "image/blobs/sha256" / digest[7:],
                    tmp_path / f"mount-{number}",
                    loops=not mounts_files(),
                )
            )
            for number, digest in enumerate(layers)
        ]
        merged = stack.enter_context(overlay(tmp_path / "merged", *reversed(roots)))
        model = merged / "opt/packager/model"
        for path in (*TINY.glob("*.safetensors"), TINY / "config.json"):
            assert (model / path.name).read_bytes() == path.read_bytes()
