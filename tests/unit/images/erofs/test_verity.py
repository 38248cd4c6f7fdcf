"""Hash trees of dm-verity. The root hashes were written by `veritysetup format` of cryptsetup 2.6
with `--salt` 64 zeros, `--hash-offset` the data's size and the block size of the case."""

from __future__ import annotations

import hashlib
import io
import json

import pytest

from packager.images.erofs.verity import VerityTree, verity_size, write_verity
from tests.support.cases import cases


def blocks(count: int, block: int) -> bytes:
    """Data that differ in every block."""
    return b"".join(
        hashlib.sha256(number.to_bytes(8, "little")).digest() * (block // 32)
        for number in range(count)
    )


def written(data: bytes, block: int) -> tuple[VerityTree, bytes]:
    file = io.BytesIO(data)

    def read(offset: int, length: int) -> bytes:
        return file.getvalue()[offset : offset + length]

    def put(offset: int, added: bytes) -> None:
        file.seek(offset)
        file.write(added)

    return write_verity(len(data), block, read, put), file.getvalue()


@cases("roots")
def test_size_and_root_are_those_that_veritysetup_computes(
    count: int, block: int, root: str
) -> None:
    data = blocks(count, block)

    tree, whole = written(data, block)

    assert tree.root_hash == root
    assert whole.startswith(data)
    assert len(whole) - len(data) == verity_size(len(data), block)


def test_equal_data_give_equal_trees() -> None:
    assert written(blocks(40, 512), 512) == written(blocks(40, 512), 512)


def test_the_sidecar_says_what_containerd_reads_in_it() -> None:
    tree, _ = written(blocks(2, 4096), 4096)

    assert json.loads(tree.sidecar()) == {"roothash": tree.root_hash, "hashoffset": 8192}


def test_data_that_are_no_whole_blocks_have_no_tree() -> None:
    with pytest.raises(ValueError, match="100 bytes are not whole blocks of 512"):
        written(bytes(100), 512)
