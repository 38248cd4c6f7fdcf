"""The bytes of EROFS file systems: by field for small trees, frozen for others."""

from __future__ import annotations

import hashlib
import struct

import pytest

from packager.core.image import FileRange, Inline
from packager.images.erofs.metadata import EROFS_FORMAT, make_blob, make_index
from packager.images.erofs.nodes import LayerNotMountable, LayerTree
from packager.images.erofs.scan import scan_blob
from packager.images.rootfs.node import FileNode
from packager.images.tar import TarEntry, make_tar

DIRECTORY = FileNode(kind="directory", mode=0o755)
SUPERBLOCK = slice(1024, 1152)


def tree_with(node: FileNode, tar_size: int, names: tuple[bytes, ...] = (b"f",)) -> LayerTree:
    """Return a tree of one file that has these names."""
    directories = {0: dict.fromkeys(names, 1)}
    return LayerTree(nodes=(DIRECTORY, node), directories=directories, tar_size=tar_size)


FILE = FileNode(kind="file", mode=0o644, uid=1, gid=2, mtime=3, mtime_ns=4, size=5, offset=512)
ONE_FILE = tree_with(FILE, 10240)


def test_a_blob_is_a_superblock_the_tar_and_the_metadata() -> None:
    blob = make_blob(ONE_FILE)

    # 4096 + 10240 = 14336, padded to 16384: block 32 of 512 bytes.
    assert len(blob.head) == 4096
    assert blob.block_size == 512
    assert blob.tail[:2048] == bytes(2048)
    assert blob.size_with(10240) == 16384 + 2 * 512
    superblock = blob.head[SUPERBLOCK]
    assert superblock[:4].hex() == "e2e1f5e0"  # the magic number
    assert superblock[4:12] == bytes(8)  # no checksum, no compatible features
    assert superblock[12] == 9  # blocks of 512 bytes
    assert struct.unpack_from("<HQ", superblock, 14) == (2, 2)  # the root's address; two inodes
    assert struct.unpack_from("<II", superblock, 36) == (34, 32)  # blocks; the first with inodes
    assert superblock[64:80] == b"packager".ljust(16, b"\0")
    assert superblock[80:] == bytes(48)  # no features that a kernel must know


def test_an_inode_says_what_the_header_said_and_where_the_data_lie() -> None:
    metadata = make_blob(ONE_FILE).tail[2048:]

    assert metadata[:64] == bytes(64)  # no inode has the address 0
    assert struct.unpack_from("<HHHHQIIIIQII", metadata, 64) == (
        1, 0, 0o40755, 0, 12 * 3 + 4, 33, 1, 0, 0, 0, 0, 2,
    )  # fmt: skip
    assert struct.unpack_from("<HHHHQIIIIQII", metadata, 128) == (
        1, 0, 0o100644, 0, 5, (4096 + 512) // 512, 2, 1, 2, 3, 4, 1,
    )  # fmt: skip
    assert metadata[512:552] == (
        struct.pack("<QHBx", 2, 36, 2) + struct.pack("<QHBx", 2, 37, 2)
        + struct.pack("<QHBx", 4, 39, 1) + b"...f"
    )  # fmt: skip
    assert metadata[552:] == bytes(472)


def test_an_index_names_the_tar_as_its_device_behind_its_own_blocks() -> None:
    index = make_index(ONE_FILE, "sha256:abc")

    superblock = index[SUPERBLOCK]
    assert len(index) == 8192
    assert struct.unpack_from("<II", superblock, 36) == (16, 8)
    assert struct.unpack_from("<IHHH", superblock, 80) == (8, 0, 1, 16)
    assert index[2048:2112] == b"sha256:abc".ljust(64, b"\0")
    assert struct.unpack_from("<II", index, 2112) == (20, 16)  # blocks of the tar, mapped there
    assert struct.unpack_from("<I", index, 4096 + 128 + 16) == (16 + 1,)


def test_blocks_have_4096_bytes_where_all_data_allow_it() -> None:
    def made(offset: int, size: int, tar_size: int) -> tuple[int, int]:
        tree = tree_with(FileNode(kind="file", mode=0o644, size=size, offset=offset), tar_size)
        return make_blob(tree).block_size, 1 << make_index(tree)[1024 + 12]

    assert made(4096, 8192, 16384) == (4096, 4096)
    assert made(4096, 5000, 9728) == (4096, 512)  # the tar by itself ends within the last block
    assert made(512, 8192, 16384) == (512, 512)


def test_our_weight_layers_have_blocks_of_4096_bytes() -> None:
    shard = FileRange(path="/not/there", offset=0, length=2**32 + 1)
    blob = make_tar([TarEntry(path="/opt/packager/model/a.safetensors", content=shard)])

    made = make_blob(scan_blob(blob))

    assert made.block_size == 4096
    assert len(made.head) + len(made.tail) < 32 * 1024


def test_hard_links_are_names_of_one_inode() -> None:
    node = FileNode(kind="file", mode=0o644)
    metadata = make_blob(tree_with(node, 1024, (b"a", b"b"))).tail[3072:]

    assert struct.unpack_from("<I", metadata, 128 + 44) == (2,)
    assert metadata[4096 : 4096 + 12 * 4].count(struct.pack("<Q", 4)) == 2


def test_links_of_a_directory_count_those_below_it() -> None:
    nodes = (DIRECTORY, DIRECTORY, DIRECTORY)
    tree = LayerTree(nodes=nodes, directories={0: {b"a": 1, b"b": 2}, 1: {}, 2: {}}, tar_size=1024)

    metadata = make_blob(tree).tail[3072:]

    assert [struct.unpack_from("<I", metadata, at + 44)[0] for at in (64, 128, 192)] == [4, 2, 2]


def test_extended_attributes_lie_behind_their_inode() -> None:
    noted = FileNode(kind="directory", mode=0o755, xattrs=((b"user.note", b"hi"),))
    metadata = make_blob(LayerTree(nodes=(noted,), directories={0: {}}, tar_size=1024)).tail[3072:]

    assert struct.unpack_from("<HH", metadata, 64) == (1, 4)  # 12 bytes and three times 4
    assert metadata[128:152] == bytes(12) + b"\x04\x01\x02\x00notehi".ljust(12, b"\0")


def test_a_directory_of_many_names_fills_its_blocks_in_order() -> None:
    names = tuple(b"%03d" % number + b"n" * 200 for number in range(10))
    tree = tree_with(FileNode(kind="file", mode=0o644, size=1, offset=512), 2048, names)

    metadata = make_blob(tree).tail[2048:]

    # `.` and `..` take 27 bytes, each name 12 + 203: two in each of five blocks of 512.
    assert struct.unpack_from("<Q", metadata, 64 + 8) == (4 * 512 + 2 * 215,)
    second = metadata[2 * 512 : 3 * 512]
    assert struct.unpack_from("<QHB", second) == (4, 24, 1)
    assert second[24:27] + second[227:230] == b"002003"


def test_equal_trees_give_equal_bytes_whatever_the_order_of_names() -> None:
    one = LayerTree(nodes=(DIRECTORY, DIRECTORY, DIRECTORY), tar_size=0,
                    directories={0: {b"a": 1, b"b": 2}, 1: {}, 2: {}})  # fmt: skip
    other = LayerTree(nodes=(DIRECTORY, DIRECTORY, DIRECTORY), tar_size=0,
                      directories={2: {}, 1: {}, 0: {b"b": 1, b"a": 2}})  # fmt: skip

    assert make_blob(one) == make_blob(other)
    assert make_index(one) == make_index(other)


@pytest.mark.parametrize("size", [2**32 * 512, 2**45])
def test_what_its_addresses_cannot_reach_is_refused(size: int) -> None:
    tree = tree_with(FileNode(kind="file", mode=0o644, size=1, offset=512), size)

    for make in (make_blob, make_index):
        with pytest.raises(LayerNotMountable, match="larger than its file system can address"):
            make(tree)


def test_the_format_is_frozen() -> None:
    """Blobs are known by their digests: whoever changes these bytes bumps `EROFS_FORMAT`."""
    shard = FileRange(path="/not/there", offset=0, length=5_000_000)
    blob = make_tar(
        [
            TarEntry(path="/opt/packager/model/a.safetensors", content=shard),
            TarEntry(path="/opt/packager/model/config.json", content=Inline(b"{}")),
        ]
    )
    tree = scan_blob(blob)
    made = make_blob(tree)

    assert EROFS_FORMAT == 1
    assert hashlib.sha256(made.head + made.tail).hexdigest() == (
        "9688c6009bc93a6f6156b4b1fd70caeaaaa672b9cdb5ee0d842a220399535e27"
    )
    assert hashlib.sha256(make_index(tree)).hexdigest() == (
        "f9a15de1a88bdfc09a5ecf96abd566a852b7c1bcabbab732b02d5fa5e53ce0c6"
    )
