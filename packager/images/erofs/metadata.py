"""The metadata of an EROFS file system whose data are a tar that stays as it is.

Two forms, of the same inodes and directories:

    blob    [4 KiB: superblock] [tar, padded to 4 KiB] [inodes, directories]    one file
    index   [4 KiB: superblock, device table] [inodes, directories]             beside the tar

A blob can be written in one pass over the tar, since what is known last lies last, but for the
superblock: a builder knows it before, others write it in the end.  An index makes the unchanged
layer mountable, with the tar as a second device (`-o device=`).

Blocks have 4096 bytes where all data are aligned to that, else 512.  Nothing depends on the
machine, the time or the order of entries with other names.  Changing a byte here changes the
digests of blobs: bump `EROFS_FORMAT`.

Source of the structures: the kernel's fs/erofs/erofs_fs.h and
Documentation/filesystems/erofs.rst (6.18).
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packager.images.erofs.nodes import ROOT, LayerTree, Node, NodeKind
from packager.images.erofs.scan import LayerNotMountable

EROFS_FORMAT = 1
ALIGNMENT = 4096
HEAD = 4096  # bytes before the tar in a blob, and before the inodes in an index
_SUPERBLOCK_AT, _MAGIC = 1024, 0xE0F5E1E2
_DEVICES_AT = 2048
_SLOT, _INODE = 32, 64  # bytes of an address of inodes, and of an extended inode
_DIRENT, _XATTR_HEADER = 12, 12
_EXTENDED_PLAIN = 1  # i_format: an extended inode, data in whole blocks at one place
_DEVICE_TABLE = 0x8  # feature_incompat
_FILE_TYPES: Mapping[NodeKind, int] = {
    "file": 1, "directory": 2, "character": 3, "block": 4, "fifo": 5, "symlink": 7,
}  # fmt: skip
_FORMATS: Mapping[NodeKind, int] = {
    "file": 0o100000, "directory": 0o040000, "character": 0o020000,
    "block": 0o060000, "fifo": 0o010000, "symlink": 0o120000,
}  # fmt: skip
_XATTR_PREFIXES = (
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErofsBlob:
    """What surrounds the tar in a blob: `head`, the tar, `tail`."""

    head: bytes  # 4 KiB
    tail: bytes  # padding of the tar to 4 KiB, then the metadata
    block_size: int

    def size_with(self, tar_size: int) -> int:
        """Return the bytes of the whole blob."""
        return len(self.head) + tar_size + len(self.tail)


def make_blob(tree: LayerTree) -> ErofsBlob:
    """Make the form of one file. Equal trees give equal bytes."""
    data_end = _round_up(HEAD + tree.tar_size, ALIGNMENT)
    block = _block_size(tree, data_end - HEAD)
    metadata = _make_metadata(tree, block=block, at=data_end, data_at=HEAD)
    tail = bytes(data_end - HEAD - tree.tar_size) + metadata.data
    head = bytearray(HEAD)
    _put_superblock(head, metadata, block=block, at=data_end, size=data_end + len(metadata.data))
    return ErofsBlob(head=bytes(head), tail=tail, block_size=block)


def make_index(tree: LayerTree, tag: str = "") -> bytes:
    """Make the form beside the unchanged tar, which is the file system's only other device.

    `tag` names that device, in ASCII and 64 bytes at most: for people, nothing reads it.
    """
    block = _block_size(tree, tree.tar_size)
    # The tar's addresses begin behind the index, whose length does not depend on them.
    length = HEAD + len(_make_metadata(tree, block=block, at=HEAD, data_at=0).data)
    mapped = _round_up(length, ALIGNMENT)
    metadata = _make_metadata(tree, block=block, at=HEAD, data_at=mapped)
    head = bytearray(HEAD)
    _put_superblock(head, metadata, block=block, at=HEAD, size=mapped, devices=1)
    struct.pack_into(
        "<64sII",
        head,
        _DEVICES_AT,
        tag.encode("ascii")[:64],
        _round_up(tree.tar_size, block) // block,
        mapped // block,
    )
    return (bytes(head) + metadata.data).ljust(mapped, b"\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metadata:
    data: bytes
    root: int  # address of the root's inode
    inodes: int


def _block_size(tree: LayerTree, available: int) -> int:
    """Return 4096 where every file begins at a multiple of it and its last block is there."""
    files = [node for node in tree.nodes if node.kind == "file" and node.size]
    whole = all(
        node.offset % ALIGNMENT == 0 and _round_up(node.offset + node.size, ALIGNMENT) <= available
        for node in files
    )
    return ALIGNMENT if whole else 512


def _make_metadata(tree: LayerTree, *, block: int, at: int, data_at: int) -> _Metadata:
    """Lay out inodes from byte `at` of the file system on, then directories and link targets.

    `data_at` is where the tar begins.
    """
    first_names: dict[int, bytes] = {}  # of each node, in the order of inodes: the root is first
    for path in sorted(tree.names):
        first_names.setdefault(tree.names[path], path)
    children = _children(tree)
    xattrs = {number: _make_xattrs(tree.nodes[number]) for number in first_names}
    addresses: dict[int, int] = {}
    position = _INODE  # the first address is left free: tools take an inode 0 for none
    for number in first_names:
        addresses[number] = position // _SLOT
        position += _round_up(_INODE + len(xattrs[number]), _INODE)
    inodes = bytearray(_round_up(position, block))
    behind = bytearray()  # directories and targets of links, each in whole blocks
    links = _count_links(tree, children)
    for serial, (number, path) in enumerate(first_names.items(), start=1):
        node = tree.nodes[number]
        size, where = node.size, (data_at + node.offset) // block if node.size else 0
        if node.kind in ("directory", "symlink"):
            content = node.target
            if node.kind == "directory":
                content = _make_directory(tree, path, children[path], addresses, block)
            size, where = len(content), (at + len(inodes) + len(behind)) // block
            behind += content.ljust(_round_up(size, block), b"\0")
        elif node.kind != "file":
            where = _encode_device(*node.device)
        if where >= 1 << 32:
            raise LayerNotMountable("it is larger than its file system can address")
        inode = _make_inode(node, size, where, serial, links[number], xattrs[number])
        start = addresses[number] * _SLOT
        inodes[start : start + len(inode)] = inode
    root = addresses[tree.names[ROOT]]
    return _Metadata(data=bytes(inodes + behind), root=root, inodes=len(first_names))


def _children(tree: LayerTree) -> dict[bytes, list[bytes]]:
    """Return the paths in each directory."""
    found: dict[bytes, list[bytes]] = {
        path: [] for path, number in tree.names.items() if tree.nodes[number].kind == "directory"
    }
    for path in tree.names:
        if path != ROOT:
            found[path.rpartition(b"/")[0]].append(path)
    return found


def _count_links(tree: LayerTree, children: Mapping[bytes, Sequence[bytes]]) -> Counter[int]:
    """Count the names of each node; a directory's own `.` and its children's `..` are names."""
    counts = Counter(tree.names.values())
    for path, inside in children.items():
        counts[tree.names[path]] = 2 + sum(child in children for child in inside)
    return counts


def _make_directory(
    tree: LayerTree,
    path: bytes,
    children: Sequence[bytes],
    addresses: Mapping[int, int],
    block: int,
) -> bytes:
    """Return a directory's entries, sorted by the bytes of their names, in blocks.

    A block has its entries first, then their names; the last one ends with its last name.
    """
    named = {b".": tree.names[path], b"..": tree.names[path.rpartition(b"/")[0]]}
    named |= {child.rpartition(b"/")[2]: tree.names[child] for child in children}
    blocks: list[list[tuple[bytes, int]]] = [[]]
    free = block
    for name, number in sorted(named.items()):
        if _DIRENT + len(name) > free:
            blocks.append([])
            free = block
        blocks[-1].append((name, number))
        free -= _DIRENT + len(name)
    parts: list[bytes] = []
    for entries in blocks:
        heads, names = bytearray(), bytearray()
        for name, number in entries:
            kind = _FILE_TYPES[tree.nodes[number].kind]
            name_at = _DIRENT * len(entries) + len(names)
            heads += struct.pack("<QHBx", addresses[number], name_at, kind)
            names += name
        parts.append(bytes(heads + names))
    return b"".join(part.ljust(block, b"\0") for part in parts[:-1]) + parts[-1]


def _make_inode(node: Node, size: int, where: int, serial: int, links: int, xattrs: bytes) -> bytes:
    """Return an extended inode with its extended attributes behind it."""
    return (
        struct.pack(
            "<HHHHQIIIIQII16x",
            _EXTENDED_PLAIN,
            (len(xattrs) - _XATTR_HEADER) // 4 + 1 if xattrs else 0,
            _FORMATS[node.kind] | node.mode,
            0,
            size,
            where,
            serial,
            node.uid,
            node.gid,
            node.mtime,
            0,
            links,
        )
        + xattrs
    )


def _make_xattrs(node: Node) -> bytes:
    """Return the extended attributes as they lie behind an inode; no bytes where there are none."""
    entries = bytearray()
    for name, value in node.xattrs:
        index, prefix = next(
            ((index, prefix) for index, prefix in _XATTR_PREFIXES if name.startswith(prefix)),
            (0, b""),
        )
        rest = name.removeprefix(prefix)
        if not index or len(rest) > 255 or len(value) > 65535:
            raise LayerNotMountable("it holds an extended attribute that EROFS does not know")
        entry = struct.pack("<BBH", len(rest), index, len(value)) + rest + value
        entries += entry.ljust(_round_up(len(entry), 4), b"\0")
    return bytes(_XATTR_HEADER) + bytes(entries) if entries else b""


def _encode_device(major: int, minor: int) -> int:
    """Return a device number as Linux stores it in 32 bits."""
    return (minor & 0xFF) | (major << 8) | ((minor & ~0xFF) << 12)


def _put_superblock(
    head: bytearray, metadata: _Metadata, *, block: int, at: int, size: int, devices: int = 0
) -> None:
    """Write the superblock of a file system of `size` bytes whose inodes begin at byte `at`."""
    # Overlays of several file systems tell them apart by it.
    uuid = hashlib.sha256(metadata.data).digest()[:16]
    struct.pack_into(
        "<IIIBBHQQIIII16s16sIHHH",
        head,
        _SUPERBLOCK_AT,
        _MAGIC,
        0,  # no checksum: the digest of the whole is what is trusted
        0,
        block.bit_length() - 1,
        0,
        metadata.root,
        metadata.inodes,
        0,
        0,
        size // block,
        at // block,
        0,
        uuid,
        b"packager",
        _DEVICE_TABLE if devices else 0,
        0,
        devices,
        _DEVICES_AT // 128 if devices else 0,
    )


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
