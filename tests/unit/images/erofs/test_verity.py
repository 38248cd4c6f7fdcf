"""Hash trees of dm-verity. The root hashes were written by `veritysetup format` of cryptsetup 2.6
with `--salt` 64 zeros, `--hash-offset` the data's size and the block size of the case."""

from __future__ import annotations

import hashlib
import io
import json

import pytest

from packager.images.erofs.verity import VerityTree, verity_size, write_verity


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


ROOTS = {
    (1, 4096): "3cafca3b4b3f3f3ec4c7d9a348e4245810b1247a5aa59721416a20f0934d20b0",
    (2, 4096): "6d095c1f1918e3b9d5abb6d5f0ac6d760381a4bed1e352408e1cd442df9bad30",
    (129, 4096): "182334555834bca426c350f6543b57c5926a2d2174479bd61f1077f3738b12d9",
    (17, 512): "b31828317aae68a191dc6404ad27802b2d9f1c3b19e23dff77e3e8b3ab3bbb7c",
    (300, 512): "c8ef4068d545d64d1bc01ba2d611cd22db4ab7a5fab6bab6c1b16dc61cac1681",
}


@pytest.mark.parametrize(("count", "block"), ROOTS, ids=lambda number: str(number))
def test_the_root_is_the_one_that_veritysetup_computes(count: int, block: int) -> None:
    tree, _ = written(blocks(count, block), block)

    assert tree.root_hash == ROOTS[count, block]


@pytest.mark.parametrize(("count", "block"), ROOTS, ids=lambda number: str(number))
def test_the_size_is_known_before_the_tree_is_written(count: int, block: int) -> None:
    data = blocks(count, block)

    _, whole = written(data, block)

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
