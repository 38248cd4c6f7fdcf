"""What layers hold: read once, proven, bounded, and kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from packager.core.image import Blob, FileRange, Layer
from packager.images.blobs import BlobReader
from packager.images.oci import sha256
from packager.images.rootfs import listing
from packager.images.rootfs import store as store_module
from packager.images.rootfs.node import FileNode
from packager.images.rootfs.reading import LayerReader
from packager.images.rootfs.store import ListingStore
from packager.images.rootfs.tree import Directory, FileTree, ImageFiles, parts_of, show
from packager.images.rootfs.users import Identity, NoSuchUser, find_identity
from tests.support.cases import cases, read_tables
from tests.support.indexed_layers import estargz, zstd_chunked
from tests.support.made_layers import layer_of
from tests.support.refusals import raises_code
from tests.support.tars import (
    directory,
    entry,
    file,
    hard_link,
    header,
    pax_records,
    symlink,
    tar_of,
)
from tests.unit.images.erofs.test_hostile_tars import ENDED, REFUSED

TABLES = read_tables(__file__)


TAR = tar_of(
    directory("opt", mode=0o1777, uid=5, gid=6),
    *(file("opt/a", b"x" * 700), hard_link("opt/b", "opt/a"), symlink("opt/l", "/etc\n\xff")),
    *(file("etc/passwd", b"app:x:1000:5::/:/bin/sh\n"), file("etc/group")),
    *(file("opt/.wh.gone"), entry("opt/p", b"6"), file("opt/" + "n" * 200)),
    format=1,
)
# Names, owners and times that no file system over a tar could show are no matter here.
UNPACKED = {
    *("a file behind a symbolic link", "a file below a mark"),
    *("GNU's sparse file", "PAX's sparse file", "extended attributes of 300 KB"),
    *("an unknown extended attribute", "an extended attribute without a name"),
    "an extended attribute of 64 KiB",
}


def read(*layers: Layer, store: ListingStore | None = None) -> FileTree:
    return LayerReader(BlobReader().chunks, store).tree_of("base", layers)


def seen(tree: FileTree) -> dict[str, FileNode]:
    return {
        show(path): found.node if isinstance(found, Directory) else replace(found, offset=0)
        for path, found in tree.walk()
    }


def unreadable(blob: Blob) -> Iterator[memoryview]:
    raise AssertionError("a layer was read")


@pytest.mark.parametrize("packing", ["none", "gzip", "zstd"])
def test_a_layer_is_read_once(packing: str, tmp_path: Path) -> None:
    layer, store = layer_of(TAR, packing), ListingStore(tmp_path)

    found = seen(read(layer, layer, store=store))

    assert found["/opt"] == FileNode(kind="directory", mode=0o1777, uid=5, gid=6)
    assert found["/opt/b"] == found["/opt/a"] == FileNode(kind="file", mode=0o644, size=700)
    assert found["/etc/passwd"].content == b"app:x:1000:5::/:/bin/sh\n"
    assert found["/etc/group"].content == b""
    assert found["/opt/l"].target == "/etc\n\xff".encode()
    assert "/opt/.wh.gone" not in found
    assert seen(LayerReader(unreadable, store).tree_of("base", [layer, layer])) == found


@cases("documents", more="")
def test_a_damaged_listing_is_read_again(start: int, end: int, more: str, tmp_path: Path) -> None:
    layer, store = layer_of(TAR, "gzip"), ListingStore(tmp_path)
    whole = seen(read(layer, store=store))
    (place,) = (tmp_path / "v2").iterdir()
    document = place.read_bytes()
    place.write_bytes(document[start:end] + more.encode())

    assert seen(read(layer, store=store)) == whole
    assert place.read_bytes() == document


def test_the_listing_of_another_layer_is_none(tmp_path: Path) -> None:
    one, other, store = layer_of(TAR), layer_of(ENDED), ListingStore(tmp_path)
    read(one, store=store)
    (place,) = (tmp_path / "v2").iterdir()
    place.rename(place.with_name(other.digest.removeprefix("sha256:")))

    assert [*seen(read(other, store=store))] == ["/"]


def test_of_a_plain_tar_here_the_headers_are_read(tmp_path: Path) -> None:
    tar = tar_of(file("a", b"x" * 3_000_000), file("b"), directory("c"))
    (tmp_path / "tar").write_bytes(tar)
    place = FileRange(path=str(tmp_path / "tar"), offset=0, length=len(tar))
    layer = replace(layer_of(tar), blob=Blob((place,)))

    store = ListingStore(tmp_path / "store")

    found = LayerReader(unreadable, store).tree_of("base", [layer])

    assert seen(found) == seen(read(layer_of(tar)))
    other = tar_of(file("other", b"x" * 3_000_000), file("b"), directory("c"))
    (tmp_path / "tar").write_bytes(other)  # in its place, of the same size
    assert "/other" in seen(LayerReader(unreadable, store).tree_of("base", [layer]))


def test_what_is_asked_of_one_path_needs_no_other(tmp_path: Path) -> None:
    """A link, a removal and a hard link lead to more; the answer is that of the whole tree."""
    layers = [
        layer_of(tar_of(*members), "gzip")
        for members in (
            [directory("usr", mode=0o700), file("usr/x/y"), symlink("opt/packager", "../l/p")],
            [symlink("l", "/srv/./q"), file("srv/q/p/.wh.b"), file("etc/a", b"abc")],
            [hard_link("srv/q/p/a", "etc/a"), directory("srv/q/p", mode=0o711), file("usr/.wh.x")],
        )
    ]
    reader = LayerReader(BlobReader().chunks, ListingStore(tmp_path))
    files = ImageFiles(lambda wanted: reader.tree_of("base", layers, wanted))
    path = parts_of("/opt/packager/a")

    def ask(tree: FileTree) -> object:
        place = tree.locate(path)
        return place.path, place.found, [*tree.files_below(parts_of("/srv"))]

    assert files.ask(ask) == ask(reader.tree_of("base", layers))
    assert files.ask(lambda tree: tree.locate(path).path) == parts_of("/srv/q/p/a")
    assert b"usr" not in files.ask(lambda tree: tree.root.names)


@pytest.mark.parametrize("indexed", [estargz, zstd_chunked])
def test_an_index_that_the_manifest_names_is_read_by_ranges(
    indexed: Callable[..., Layer],
) -> None:
    layer = indexed(TAR)
    streamed = seen(read(replace(layer, annotations={})))
    streamed.pop("/stargz.index.json", None)  # engines that read the tar unpack the table, too

    assert seen(LayerReader(unreadable).tree_of("base", [layer])) == streamed
    lying = seen(read(indexed(TAR, digest=sha256(b"another table"))))
    assert lying.keys() - {"/stargz.index.json"} == streamed.keys()


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - UNPACKED))
def test_a_tar_that_no_engine_unpacks_is_refused(name: str) -> None:
    with raises_code("LayerBroken") as refused:
        read(layer_of(REFUSED[name] + ENDED, "gzip"))

    assert refused.value.exit_code == 65


@cases("lies")
def test_a_layer_that_is_not_what_it_says_is_refused(change: dict[str, str], reason: str) -> None:
    with raises_code("LayerBroken", "LayerOfNoEngine", match=reason):
        read(replace(layer_of(TAR, "gzip"), **change))


def test_a_sparse_file_has_its_size_and_its_data_are_passed_over() -> None:
    records = [("GNU.sparse.name", b"s"), ("GNU.sparse.realsize", b"9000000")]
    pax = pax_records(records) + header(name=b"GNUSparseFile.0/s", size=b"1000") + bytes(512)
    old = bytearray(header(b"S", name=b"o", size=b"1000", magic=b"ustar  \0"))
    old[482], old[483:495] = 1, b"00000020000\0"
    old[148:156] = b" " * 8
    old[148:156] = b"%06o\0 " % sum(old)

    found = seen(read(layer_of(pax + bytes(old) + bytes(512) + b"x" * 512 + ENDED)))

    assert {name: node.size for name, node in found.items()} == TABLES[
        "a_sparse_file_has_its_size_and_its_data_are_passed_over"
    ]


@pytest.mark.parametrize(("bound", "value"), [("MAX_ENTRIES", 3), ("MAX_TEXT", 100)])
def test_counts_and_names_are_bounded(
    bound: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, bound, value)

    with raises_code("LayerBroken", match="more than"):
        read(layer_of(TAR))


@cases("users", passwd=None, group=None, who=None, missing="")
def test_a_user_is_who_engines_find(
    user: str, passwd: str | None, group: str | None, who: list[int] | None, missing: str
) -> None:
    files = [None if text is None else text.encode() for text in (passwd, group)]
    if missing:
        with pytest.raises(NoSuchUser, match=missing):
            find_identity(user, *files)
        return

    assert find_identity(user, *files) == (Identity(who[0], frozenset(who[1:])) if who else None)


def test_what_killed_writers_left_goes_with_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MAX_BYTES", 300)
    store = ListingStore(tmp_path)
    store.put("a", b"a" * 100)
    left = tmp_path / "v2" / ".listing.left"
    left.write_bytes(b"x" * 100)
    os.utime(left, (1, 1))

    for name in "bcd":
        store.put(name, name.encode() * 100)

    assert not left.exists()
    assert [store.get(name) is not None for name in "abcd"] == [False, True, True, True]


def test_deep_names_take_no_time() -> None:
    deep = [file("/".join(["d"] * 900 + [f"{number}"] * 30)) for number in range(300)]
    started = time.process_time()

    read(layer_of(tar_of(*deep), "gzip"))

    assert time.process_time() - started < 5


def test_links_that_lead_on_and_on_are_not_followed_for_ever() -> None:
    links = [symlink(f"l{at}", f"{'./' * 1000}l{at + 1}") for at in range(38)]
    behind = [file(f"l0/{number}/x") for number in range(600)]

    with raises_code("LayerBroken", match="lead too far"):
        read(layer_of(tar_of(*links, directory("l38"), *behind), "gzip"))
