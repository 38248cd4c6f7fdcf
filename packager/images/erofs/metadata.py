"""The metadata of an EROFS file system whose data are a tar that stays as it is.

Two forms, of the same inodes and directories:

    blob    [4 KiB: superblock] [tar, padded to 4 KiB] [inodes, directories]    one file
    index   [4 KiB: superblock, device table] [inodes, directories]             beside the tar

A blob can be written in one pass over the tar, since metadata comes last, but for the superblock: a
builder knows it in advance, others write it at the end.  An index makes the unchanged layer
mountable, with the tar as a second device (`-o device=`).

Blocks have 4096 bytes where all data are aligned to that, else 512.  Nothing depends on the
machine, the time or the order of entries with other names.  Changing a byte here changes the
digests of blobs: bump `EROFS_FORMAT`.

Source of the structures: the kernel's fs/erofs/erofs_fs.h and
Documentation/filesystems/erofs.rst (6.18).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from packager.core.units import MIB
from packager.images.erofs.nodes import ROOT_NODE, LayerNotMountable, LayerTree
from packager.images.rootfs.node import FileNode, NodeKind

EROFS_FORMAT = 1
ALIGNMENT = 4096
HEAD = 4096  # bytes before the tar in a blob, and before the inodes in an index
MAX_METADATA = 256 * MIB  # a million names take less; only directories without end take more
_SUPERBLOCK_AT, _MAGIC = 1024, 0xE0F5E1E2
_DEVICES_AT = 2048
_SLOT, _INODE = 32, 64  # bytes of an address of inodes, and of an extended inode
_DIRENT, _XATTR_HEADER = 12, 12
_EXTENDED_PLAIN = 1  # i_format: an extended inode, data in whole blocks at one place
_DEVICE_TABLE = 0x8  # feature_incompat
_MAX_BLOCKS = 2**32
_MAX_XATTRS = 4 * 65535  # bytes at one inode: its header counts them in fours
_FILE_TYPES: Mapping[NodeKind, int] = {
    "file": 1, "directory": 2, "character": 3, "block": 4, "fifo": 5, "symlink": 7,
}  # fmt: skip
_FORMATS: Mapping[NodeKind, int] = {
    "file": 0o100000, "directory": 0o040000, "character": 0o020000,
    "block": 0o060000, "fifo": 0o010000, "symlink": 0o120000,
}  # fmt: skip
# By whether a name follows them.
_XATTR_PREFIXES = (
    (1, b"user.", True),
    (2, b"system.posix_acl_access", False),
    (3, b"system.posix_acl_default", False),
    (4, b"trusted.", True),
    (6, b"security.", True),
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
    laid = _lay_out(tree, _block_size(tree, data_end - HEAD))
    metadata = _write(tree, laid, at=data_end, data_at=HEAD)
    tail = bytes(data_end - HEAD - tree.tar_size) + metadata
    head = bytearray(HEAD)
    _put_superblock(head, laid, metadata, at=data_end, size=data_end + len(metadata))
    return ErofsBlob(head=bytes(head), tail=tail, block_size=laid.block)


def make_index(tree: LayerTree, tag: str = "") -> bytes:
    """Make the form beside the unchanged tar, which is the file system's only other device.

    `tag` names that device for people, in at most 64 bytes of ASCII; no program reads it.
    """
    laid = _lay_out(tree, _block_size(tree, tree.tar_size))
    mapped = _round_up(HEAD + laid.size, ALIGNMENT)  # the tar's addresses begin behind the index
    metadata = _write(tree, laid, at=HEAD, data_at=mapped)
    head = bytearray(HEAD)
    _put_superblock(head, laid, metadata, at=HEAD, size=mapped, devices=1)
    tar_blocks = _round_up(tree.tar_size, laid.block) // laid.block
    _check_blocks(mapped // laid.block + tar_blocks)
    slot = (tag.encode("ascii")[:64], tar_blocks, mapped // laid.block)
    struct.pack_into("<64sII", head, _DEVICES_AT, *slot)
    return (bytes(head) + metadata).ljust(mapped, b"\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Laid:
    """Where everything lies, relative to the first inode: before the place of that is known."""

    block: int
    addresses: Mapping[int, int]  # of each node's inode, in the order of inodes: the root is first
    xattrs: Mapping[int, bytes]  # of the nodes that have some
    contents: Mapping[int, bytes]  # of directories and symbolic links
    links: Mapping[int, int]
    inode_bytes: int  # in whole blocks; the contents follow, each in whole blocks

    @property
    def size(self) -> int:
        """Bytes of the metadata."""
        contents = sum(_round_up(len(one), self.block) for one in self.contents.values())
        return self.inode_bytes + contents


def _block_size(tree: LayerTree, available: int) -> int:
    """Return 4096 where every file begins at a multiple of it and its last block is there."""
    files = [node for node in tree.nodes if node.kind == "file" and node.size]
    whole = all(
        node.offset % ALIGNMENT == 0 and _round_up(node.offset + node.size, ALIGNMENT) <= available
        for node in files
    )
    return ALIGNMENT if whole else 512


def _lay_out(tree: LayerTree, block: int) -> _Laid:
    """Choose a place for every inode, and make the directories, which name those places."""
    addresses: dict[int, int] = {}
    xattrs: dict[int, bytes] = {}
    links = {ROOT_NODE: 2}
    parents = {ROOT_NODE: ROOT_NODE}
    position = _INODE  # the first address is left free: tools take an inode 0 for none
    waiting = [ROOT_NODE]
    while waiting:
        number = waiting.pop()
        addresses[number] = position // _SLOT
        found = _make_xattrs(tree.nodes[number])
        if found:
            xattrs[number] = found
        position += _round_up(_INODE + len(found), _INODE)
        names = tree.directories.get(number, {})
        for name in sorted(names, reverse=True):
            child = names[name]
            if child in tree.directories:  # its own `.`, and its `..` here
                links[child], parents[child] = 2, number
                links[number] += 1
            else:
                links[child] = links.get(child, 0) + 1
            if links[child] == 1 or child in tree.directories:
                waiting.append(child)
    contents: dict[int, bytes] = {}
    inode_bytes = size = _round_up(position, block)
    for number in addresses:
        node = tree.nodes[number]
        if node.kind in ("directory", "symlink"):
            is_directory = node.kind == "directory"
            contents[number] = (
                _make_directory(tree, number, parents[number], addresses, block)
                if is_directory
                else node.target
            )
            size += _round_up(len(contents[number]), block)
        if size > MAX_METADATA:
            raise LayerNotMountable(f"its names take more than {MAX_METADATA // MIB} MiB")
    return _Laid(
        block=block,
        addresses=addresses,
        xattrs=xattrs,
        contents=contents,
        links=links,
        inode_bytes=inode_bytes,
    )


def _make_directory(
    tree: LayerTree, number: int, parent: int, addresses: Mapping[int, int], block: int
) -> bytes:
    """Return a directory's entries, sorted by the bytes of their names, in blocks.

    A block has its entries first, then their names; the last one ends with its last name.
    """
    named = {b".": number, b"..": parent, **tree.directories[number]}
    blocks: list[list[tuple[bytes, int]]] = [[]]
    free = block
    for name, child in sorted(named.items()):
        if _DIRENT + len(name) > free:
            blocks.append([])
            free = block
        blocks[-1].append((name, child))
        free -= _DIRENT + len(name)
    parts: list[bytes] = []
    for entries in blocks:
        heads, names = bytearray(), bytearray()
        for name, child in entries:
            kind = _FILE_TYPES[tree.nodes[child].kind]
            name_at = _DIRENT * len(entries) + len(names)
            heads += struct.pack("<QHBx", addresses[child], name_at, kind)
            names += name
        parts.append(bytes(heads + names))
    return b"".join(part.ljust(block, b"\0") for part in parts[:-1]) + parts[-1]


def _write(tree: LayerTree, laid: _Laid, *, at: int, data_at: int) -> bytes:
    """Write inodes from byte `at` of the file system on, then directories and link targets.

    `data_at` is where the tar begins.
    """
    block = laid.block
    metadata = bytearray(laid.size)
    content_at = laid.inode_bytes
    for serial, (number, address) in enumerate(laid.addresses.items(), start=1):
        node = tree.nodes[number]
        size, where = node.size, (data_at + node.offset) // block if node.size else 0
        content = laid.contents.get(number)
        if content is not None:
            size, where = len(content), (at + content_at) // block
            metadata[content_at : content_at + size] = content
            content_at += _round_up(size, block)
        elif node.kind != "file":
            where = _encode_device(*node.device)
        _check_blocks(where)
        inode = _make_inode(
            node,
            size=size,
            where=where,
            serial=serial,
            links=laid.links[number],
            xattrs=laid.xattrs.get(number, b""),
        )
        start = address * _SLOT
        metadata[start : start + len(inode)] = inode
    return bytes(metadata)


def _make_inode(
    node: FileNode, *, size: int, where: int, serial: int, links: int, xattrs: bytes
) -> bytes:
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
            node.mtime_ns,
            links,
        )
        + xattrs
    )


def _make_xattrs(node: FileNode) -> bytes:
    """Return the extended attributes as they lie behind an inode; no bytes where there are none."""
    entries = bytearray()
    for name, value in node.xattrs:
        index, prefix = next(
            (
                (index, prefix)
                for index, prefix, is_named in _XATTR_PREFIXES
                if name.startswith(prefix) and (len(name) > len(prefix)) == is_named
            ),
            (0, b""),
        )
        rest = name.removeprefix(prefix)
        if not index or len(rest) > 255 or len(value) > 65535 or b"\0" in name:
            raise LayerNotMountable("it holds an extended attribute that EROFS does not know")
        entry = struct.pack("<BBH", len(rest), index, len(value)) + rest + value
        entries += entry.ljust(_round_up(len(entry), 4), b"\0")
    if len(entries) > _MAX_XATTRS - _XATTR_HEADER:
        raise LayerNotMountable("it holds more extended attributes than EROFS can")
    return bytes(_XATTR_HEADER) + bytes(entries) if entries else b""


def _encode_device(major: int, minor: int) -> int:
    """Return a device number as Linux stores it in 32 bits."""
    return (minor & 0xFF) | (major << 8) | ((minor & ~0xFF) << 12)


def _put_superblock(
    head: bytearray, laid: _Laid, metadata: bytes, *, at: int, size: int, devices: int = 0
) -> None:
    """Write the superblock of a file system of `size` bytes whose inodes begin at byte `at`."""
    _check_blocks(size // laid.block)
    # Overlays of several file systems distinguish them by it.
    uuid = hashlib.sha256(metadata).digest()[:16]
    struct.pack_into(
        "<IIIBBHQQIIII16s16sIHHH",
        head,
        _SUPERBLOCK_AT,
        _MAGIC,
        0,  # no checksum: the digest of the whole is what is trusted
        0,
        laid.block.bit_length() - 1,
        0,
        laid.addresses[ROOT_NODE],
        len(laid.addresses),
        0,
        0,
        size // laid.block,
        at // laid.block,
        0,
        uuid,
        b"packager",
        _DEVICE_TABLE if devices else 0,
        0,
        devices,
        _DEVICES_AT // 128 if devices else 0,
    )


def _check_blocks(count: int) -> None:
    if count >= _MAX_BLOCKS:
        raise LayerNotMountable("it is larger than its file system can address")


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
