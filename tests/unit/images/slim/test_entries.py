"""Entries of tar streams: kept bit by bit, refused where engines could read them otherwise."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator

import pytest

from packager.images.slim.entries import BLOCK, LONGEST_RECORD, LayerRefused, TarStream
from tests.support import tars
from tests.support.cases import read_tables
from tests.support.made_layers import file, link, member, tar_of

FORMS = [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]


def chunked(data: bytes, size: int = 700) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def header(flag: bytes, name: bytes = b"a", size: bytes = b"0") -> bytes:
    """Return a header with the right checksum."""
    return tars.header(flag, name=name, size=size if len(size) == 12 else size.rjust(11, b"0"))


@pytest.mark.parametrize("form", FORMS)
def test_every_entry_is_found_and_its_bytes_are_the_archives(form: int) -> None:
    table = read_tables(__file__)
    data = tar_of([member(*entry) for entry in table["members"]], form)
    stream, kept = TarStream(chunked(data)), b""
    found = []
    for entry in stream:
        body = b"".join(bytes(piece) for piece in stream.data())
        kept += entry.head + body
        found.append((entry.path, entry.kind, entry.target, body[: entry.size]))

    assert found == [(*entry[:3], entry[3].encode()) for entry in table["found"]]
    assert kept == data[: len(kept)]
    assert not any(data[len(kept) :])


def test_data_that_nobody_takes_is_passed_over() -> None:
    data = tar_of([file("a", b"x" * 5000), file("b", b"y")])

    assert [entry.path for entry in TarStream(chunked(data))] == ["a", "b"]


def test_extended_attributes_are_in_the_head_that_is_kept() -> None:
    capability = {"SCHILY.xattr.security.capability": "\x01\x02"}
    [entry] = TarStream(chunked(tar_of([file("ping", pax_headers=capability)])))

    assert b"SCHILY.xattr.security.capability=\x01\x02\n" in entry.head


def test_a_size_in_a_pax_record_wins_over_the_field() -> None:
    record = b"12 size=512\n"
    extended = header(b"x", size=b"%o" % len(record)) + record.ljust(BLOCK, b"\0")
    body = b"z" * BLOCK
    data = extended + header(b"0", b"big", b"0") + body + header(b"0", b"next") + bytes(2 * BLOCK)

    assert [(one.path, one.size) for one in TarStream([data])] == [("big", 512), ("next", 0)]


def test_a_sparse_file_of_gnu_takes_its_whole_map() -> None:
    first = bytearray(header(b"S", b"holes", b"1000"))  # 512 stored bytes
    first[482] = 1
    first[148:156] = b" " * 8
    first[148:156] = b"%06o\0 " % sum(first)
    data = bytes(first) + bytes(BLOCK) + b"d" * BLOCK + header(b"0", b"next") + bytes(2 * BLOCK)
    holes, after = TarStream([data])

    assert (holes.path, len(holes.head), holes.size) == ("holes", 2 * BLOCK, 512)
    assert after.path == "next"


HOSTILE = {
    "a name that leads out": tar_of([file("../../etc/passwd", b"x")]),
    "a link that leads out": tar_of([link("a", "../b")]),
    "a cut header": tar_of([file("a", b"x" * 600)])[:300],
    "cut data": tar_of([file("a", b"x" * 6000)])[: 2 * BLOCK],
    "a wrong checksum": b"x" * BLOCK + bytes(2 * BLOCK),
    "a size below zero": header(b"0", size=b"\xff" * 12),
    "a size beyond every disk": header(b"0", size=b"\x80" + b"\xff" * 11),
    "a size that is no number": header(b"0", size=b"12x"),
    "an unknown type": header(b"Q"),
    "a record that is too long": header(b"x", size=b"%o" % (LONGEST_RECORD + 1)),
    "records without a length": header(b"x", size=b"%o" % 6) + b"path=a".ljust(BLOCK, b"\0"),
    "a record with a wrong length": header(b"x", size=b"%o" % 9) + b"99 path=a".ljust(BLOCK, b"\0"),
    "headers without an entry": header(b"L", size=b"1") + b"a".ljust(BLOCK, b"\0") + bytes(BLOCK),
    "headers without an end": (header(b"L", size=b"1") + b"a".ljust(BLOCK, b"\0")) * 1000,
    "a global name": header(b"g", size=b"%o" % 9)
    + b"9 path=b\n".ljust(BLOCK, b"\0")
    + header(b"0"),
    "a map without an end": header(b"S")[:482] + b"\1" + header(b"S")[483:],
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_what_engines_could_read_otherwise_is_refused(data: bytes) -> None:
    with pytest.raises(LayerRefused, match="a layer cannot be read as a tar archive"):
        list(TarStream(chunked(data)))


def test_an_archive_may_end_without_empty_blocks_and_with_more_than_two() -> None:
    data = tar_of([file("a")])

    assert [entry.path for entry in TarStream(io.BytesIO(data[:BLOCK]))] == ["a"]
    assert [entry.path for entry in TarStream([data + bytes(100 * BLOCK)])] == ["a"]
