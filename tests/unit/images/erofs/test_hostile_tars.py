"""Tars of strangers: a typed refusal, or a tree that can be mounted; never more work than input."""

from __future__ import annotations

import random
import tarfile
import time
import tracemalloc
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.images.erofs.metadata import make_blob, make_index
from packager.images.erofs.nodes import LayerNotMountable
from packager.images.erofs.scan import TarScanner
from tests.support.cases import read_tables
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

ENDED = bytes(1024)


def mount_forms(tar: bytes) -> None:
    """Scan the tar and make both forms; `LayerNotMountable` is the only failure there is."""
    scanner = TarScanner()
    scanner.feed(tar)
    tree = scanner.finish()
    make_blob(tree)
    make_index(tree)


def text_of(value: Any) -> bytes:
    """Return a field of a table as bytes; a long one is a text, how often, and its end."""
    if isinstance(value, str):
        return value.encode("latin-1")
    return (value["text"] * value["times"] + value.get("end", "")).encode("latin-1")


def headers_of(entries: Iterable[Mapping[str, Any]]) -> bytes:
    """Return headers without data, those of PAX with their one record."""
    return b"".join(
        pax_records([(one["pax"], text_of(one["value"]))])
        if "pax" in one
        else header(**{name: text_of(value) for name, value in one.items()})
        for one in entries
    )


REFUSED = {
    name: headers_of(row["entries"]) for name, row in read_tables(__file__)["refused"].items()
}
REFUSED |= {
    "a link that leads out": tar_of(file("a"), hard_link("b", "../a"))[:1024],
    "a wrong checksum": header()[:200] + b"x" + header()[201:],
    "a PAX record longer than its header": pax_records([("a", b"b")]).replace(b"6 a=b", b"9 a=b")
    + header(),
    "extended attributes of 300 KB": pax_records(
        [(f"SCHILY.xattr.user.{number}", bytes(60_000)) for number in range(5)]
    )
    + header(),
    "a header behind one block of zeros": header() + bytes(512) + header(name=b"b"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_file_system_could_show_is_refused(name: str) -> None:
    with pytest.raises(LayerNotMountable) as refused:
        mount_forms(REFUSED[name] + ENDED)

    assert refused.value.exit_code == 65
    assert "plain form" in (refused.value.hint or "")


@pytest.mark.parametrize("kind", [b"x", b"L", b"0"])
def test_a_tar_that_ends_within_an_entry_is_refused(kind: bytes) -> None:
    whole = header(kind, size=b"100") + b"a".ljust(512, b"\0")

    for length in (1, 511, 512, 600, 1023):
        with pytest.raises(LayerNotMountable, match="ends within an entry"):
            mount_forms(whole[:length])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_gives_a_refusal_or_a_tree(data: st.DataObject) -> None:
    tar = bytearray(
        tar_of(
            *(directory("d"), file("d/f", b"x" * 600), hard_link("d/g", "d/f")),
            *(symlink("l", "d"), file("n" * 200, b"long"), entry("c", tarfile.CHRTYPE)),
            *(file(".wh.gone"), file("d/.wh..wh..opq")),
        )[:8192]
    )
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(tar) - 1))
        tar[at] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):  # with a checksum that is right
            block = at // 512 * 512
            tar[block + 148 : block + 156] = b" " * 8
            total = sum(tar[block : block + 512])
            tar[block + 148 : block + 156] = b"%06o\0 " % total
    cut = data.draw(st.integers(0, len(tar)))
    with suppress(LayerNotMountable):
        mount_forms(bytes(tar[:cut]))


def test_random_bytes_are_refused() -> None:
    dice = random.Random(7)
    for _ in range(50):
        with pytest.raises(LayerNotMountable):
            mount_forms(dice.randbytes(4096))


def deep(depth: int, distinct: bool, entries: int) -> list[bytes]:
    """Entries whose names have many parts: of one directory, or each of its own."""
    names = (
        (b"%d/" % number if distinct else b"") + b"d/" * depth + b"f%d" % number
        for number in range(entries)
    )
    return [pax_records([("path", name)]) + header() for name in names]


def test_deep_paths_take_memory_by_their_names_and_no_recursion() -> None:
    pieces = deep(1990, distinct=False, entries=300)
    scanner = TarScanner()
    tracemalloc.start()
    for piece in pieces:
        scanner.feed(piece)
    tree = scanner.finish()
    make_blob(tree)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(tree.nodes) == 1 + 1990 + 300
    # Each directory is a block of 4 KiB in the end: 8 MB, twice while they are joined.
    assert peak < 40_000_000


def test_directories_without_end_are_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packager.images.erofs.entries.MAX_ENTRIES", 20_000)
    scanner = TarScanner()

    with pytest.raises(LayerNotMountable, match=r"more than 20,000 files"):
        for piece in deep(1990, distinct=True, entries=100):
            scanner.feed(piece)


def test_metadata_without_end_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packager.images.erofs.metadata.MAX_METADATA", 1024 * 1024)

    with pytest.raises(LayerNotMountable, match="its names take more than 1 MiB"):
        mount_forms(b"".join(header(b"5", name=b"%d/" % number) for number in range(300)))


def test_marks_of_removed_files_count_as_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packager.images.erofs.entries.MAX_ENTRIES", 1_000)

    with pytest.raises(LayerNotMountable, match="more than 1,000 files"):
        mount_forms(b"".join(header(name=b".wh.%d" % number) for number in range(1_100)))


@pytest.mark.parametrize("shape", ["one name", "names", "chain of links", "switching kinds"])
def test_time_follows_the_length_of_the_tar(shape: str) -> None:
    def tar(count: int) -> bytes:
        if shape == "one name":
            return header() * count
        if shape == "names":
            return b"".join(header(name=b"d/%d" % number) for number in range(count))
        if shape == "chain of links":
            links = (header(b"1", name=b"%d" % (n + 1), link=b"%d" % n) for n in range(count))
            return header(name=b"0") + b"".join(links)
        return (header(b"5", name=b"a") + header(name=b"a/b/f") + header(name=b"a")) * (count // 3)

    def seconds(count: int) -> float:
        made = tar(count)
        started = time.process_time()
        mount_forms(made)
        return time.process_time() - started

    seconds(500)
    small, large = min(seconds(2_000) for _ in range(3)), min(seconds(16_000) for _ in range(2))

    assert large < 8 * small * 2.5
