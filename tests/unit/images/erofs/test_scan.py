"""What a tar's headers say, as the tree that a container engine would have unpacked."""

from __future__ import annotations

import tarfile

import pytest

from packager.core.image import FileRange, Inline
from packager.images.erofs.nodes import LayerTree
from packager.images.erofs.scan import TarScanner, scan_blob
from packager.images.rootfs.node import FileNode
from packager.images.tar import TarEntry, make_tar
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

ENDED = bytes(1024)


def scan(tar: bytes, step: int = 1 << 20) -> LayerTree:
    scanner = TarScanner()
    for at in range(0, len(tar), step):
        scanner.feed(tar[at : at + step])
    return scanner.finish()


def tree_of(*members: Member, format: int = tarfile.GNU_FORMAT) -> dict[bytes, FileNode]:
    found = scan(tar_of(*members, format=format))
    return {path: found.nodes[number] for path, number in found.walk()}


def test_a_file_has_its_header_and_the_place_of_its_data() -> None:
    found = tree_of(file("a/b.txt", b"hello", mode=0o4750, uid=5, gid=6, mtime=12345))

    assert found == {
        b"": FileNode(kind="directory", mode=0o755),
        b"a": FileNode(kind="directory", mode=0o755),
        b"a/b.txt": FileNode(
            kind="file", mode=0o4750, uid=5, gid=6, mtime=12345, size=5, offset=512
        ),
    }


@pytest.mark.parametrize("step", [1, 7, 511, 512, 513, 10240])
def test_pieces_of_any_size_give_one_tree(step: int) -> None:
    tar = tar_of(file("x" * 255, b"1" * 700), file("y/" + "z" * 255, b"2"), symlink("l", "x"))

    assert scan(tar, step) == scan(tar)


def test_a_layer_of_ours_is_scanned_without_its_files() -> None:
    shard = FileRange(path="/is/not/there", offset=0, length=2**33)
    blob = make_tar(
        [TarEntry(path="/m/a", content=Inline(b"x")), TarEntry(path="/m/b", content=shard)]
    )

    found = scan_blob(blob)

    paths = {path: found.nodes[number] for path, number in found.walk()}
    assert list(paths) == [b"", b"m", b"m/a", b"m/b"]
    assert (paths[b"m/b"].size, paths[b"m/b"].offset % 4096) == (2**33, 0)
    assert found.tar_size == blob.size


def test_links_devices_and_pipes_are_kept() -> None:
    found = scan(
        tar_of(
            file("f", b"x"),
            hard_link("again", "./f"),
            symlink("l", "../f"),
            entry("c", tarfile.CHRTYPE, devmajor=5, devminor=1),
            entry("b", tarfile.BLKTYPE, devmajor=259, devminor=300),
            entry("p", tarfile.FIFOTYPE),
        )
    )

    names = found.directories[0]
    assert names[b"again"] == names[b"f"]
    kinds = {name: found.nodes[number].kind for name, number in names.items()}
    assert kinds == {
        b"f": "file", b"again": "file", b"l": "symlink",
        b"c": "character", b"b": "block", b"p": "fifo",
    }  # fmt: skip
    assert found.nodes[names[b"l"]].target == b"../f"
    assert found.nodes[names[b"b"]].device == (259, 300)


def test_a_later_entry_replaces_an_earlier_one() -> None:
    found = tree_of(
        *(file("a", b"old"), file("a", b"newer"), directory("d"), file("d/below"), file("d", b"x")),
        *(file("e"), directory("e"), file("e/f")),
    )

    assert [*found] == [b"", b"a", b"d", b"e", b"e/f"]
    assert (found[b"a"].size, found[b"d"].kind, found[b"e"].kind) == (5, "file", "directory")


def test_a_directory_that_is_there_takes_the_later_attributes_and_keeps_its_files() -> None:
    found = tree_of(file("d/f"), directory("d", mode=0o700), directory("./", mode=0o711, uid=3))

    assert [*found] == [b"", b"d", b"d/f"]
    assert (found[b"d"].mode, found[b""].mode, found[b""].uid) == (0o700, 0o711, 3)


def test_removed_files_become_marks_of_overlayfs() -> None:
    found = tree_of(file("d/.wh.gone"), file("d/.wh.here"), file("d/here", b"new"))

    assert [*found] == [b"", b"d", b"d/gone", b"d/here"]
    assert found[b"d/gone"] == FileNode(kind="character", mode=0, device=(0, 0))
    assert found[b"d/here"].kind == "file"


def test_an_opaque_directory_is_marked_and_so_is_one_that_was_removed_and_is_there() -> None:
    found = tree_of(file("a/.wh..wh..opq"), directory("b"), file(".wh.b"), directory("c"))

    opaque = ((b"trusted.overlay.opaque", b"y"),)
    assert [found[name].xattrs for name in (b"a", b"b", b"c")] == [opaque, opaque, ()]


def test_records_of_aufs_are_passed_over() -> None:
    assert [*tree_of(file(".wh..wh.plnk/1.2"), file(".wh..wh.aufs"), file("f"))] == [b"", b"f"]


def test_pax_records_win_over_the_header() -> None:
    records = [("path", b"long/name"), ("size", b"3"), ("uid", b"70000"), ("mtime", b"2.5")]
    tar = pax_records(records) + header(size=b"7") + b"abc".ljust(512, b"\0") + ENDED

    found = scan(tar)

    names = dict(found.walk())
    node = found.nodes[names[b"long/name"]]
    assert (node.size, node.uid, node.mtime, node.mtime_ns) == (3, 70000, 2, 500_000_000)


def test_pax_records_hold_for_one_entry() -> None:
    tar = pax_records([("path", b"first")]) + header() + header(name=b"second") + ENDED

    assert [path for path, _ in scan(tar).walk()] == [b"", b"first", b"second"]


def test_an_empty_record_changes_nothing() -> None:
    tar = pax_records([("path", b""), ("mtime", b"")]) + header(mtime=b"17") + ENDED

    found = scan(tar)

    assert found.nodes[found.directories[0][b"a"]].mtime == 15


def test_extended_attributes_are_taken_but_those_that_steer_overlays() -> None:
    records = [
        ("SCHILY.xattr.user.note", b"a\xff=b\n"),
        ("SCHILY.xattr.security.capability", b"\x01\x00"),
        ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
    ]

    found = scan(pax_records(records) + header() + ENDED)

    assert found.nodes[found.directories[0][b"a"]].xattrs == (
        (b"security.capability", b"\x01\x00"),
        (b"user.note", b"a\xff=b\n"),
    )


def test_the_prefix_of_a_posix_header_is_part_of_the_name_and_gnu_has_none() -> None:
    posix = header(prefix=b"usr/lib", name=b"x")
    gnu = header(magic=b"ustar  \0", prefix=b"00000000000", name=b"y")

    assert [path for path, _ in scan(posix + gnu + ENDED).walk()] == [
        b"", b"usr", b"usr/lib", b"usr/lib/x", b"y",
    ]  # fmt: skip


def test_an_old_header_with_a_slash_at_its_end_is_a_directory() -> None:
    found = scan(header(b"\0", magic=b"", name=b"d/") + ENDED)

    assert found.nodes[found.directories[0][b"d"]].kind == "directory"


def test_sizes_over_eight_gib_are_read_in_either_spelling() -> None:
    base_256 = TarScanner()
    base_256.feed(header(size=b"\x80" + (2**33 + 1).to_bytes(11, "big")))
    base_256.skip(2**33 + 512)
    base_256.feed(ENDED)
    pax = TarScanner()
    pax.feed(pax_records([("size", b"8589934593")]) + header())
    pax.skip(2**33 + 512)
    pax.feed(ENDED)

    assert base_256.finish().nodes[1].size == pax.finish().nodes[1].size == 2**33 + 1


def test_times_before_1970_are_1970() -> None:
    tar = header(mtime=b"\xff" * 12) + pax_records([("mtime", b"-5.5")]) + header(name=b"b") + ENDED

    assert {node.mtime for node in scan(tar).nodes} == {0}


def test_what_follows_the_end_belongs_to_the_layer_and_is_no_entry() -> None:
    tar = header() + ENDED + header(name=b"b") + b"rubbish"

    found = scan(tar)

    assert [path for path, _ in found.walk()] == [b"", b"a"]
    assert found.tar_size == len(tar)
