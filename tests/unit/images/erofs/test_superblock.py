"""Superblocks: what a file's first 4 KiB say of it."""

from __future__ import annotations

import pytest

from packager.images.erofs.metadata import make_blob, make_index
from packager.images.erofs.scan import TarScanner
from packager.images.erofs.superblock import Superblock, parse_superblock
from tests.support import tars
from tests.support.known import known

TAR = tars.tar_of(tars.file("model", bytes(5000)))


def tree() -> TarScanner:
    scanner = TarScanner()
    scanner.feed(TAR)
    return scanner


def test_ours_says_where_the_metadata_begin() -> None:
    blob = make_blob(tree().finish())

    assert parse_superblock(blob.head) == Superblock(
        block_size=512,
        size=blob.size_with(len(TAR)),
        metadata_at=4096 + -(-len(TAR) // 4096) * 4096,
        is_ours=True,
    )


def test_an_index_is_as_large_as_its_file() -> None:
    index = make_index(tree().finish())

    found = known(parse_superblock(index))

    assert (found.size, found.metadata_at) == (len(index), 4096)


@pytest.mark.parametrize(
    "head",
    [b"", bytes(4096), TAR[:4096], bytes(1024) + b"\xe2\xe1\xf5\xe0" + bytes(3068)],
    ids=["nothing", "zeros", "a tar", "blocks of one byte"],
)
def test_what_is_no_file_system_is_none(head: bytes) -> None:
    assert parse_superblock(head) is None


def test_another_tools_is_not_ours() -> None:
    head = bytearray(make_blob(tree().finish()).head)
    head[1024 + 64 : 1024 + 72] = b"mkfs\0\0\0\0"

    found = known(parse_superblock(bytes(head)))

    assert not found.is_ours
