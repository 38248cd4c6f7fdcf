"""The hash tree with which dm-verity proves each block of a file system when it is read.

Where things lie, behind the file system:

    [superblock, one block] [the tree's levels, the highest first]

The salt is 32 zero bytes, as containerd's is, and the UUID follows from the root hash, so that
equal file systems give equal bytes.  Blocks have the size of the file system's: EROFS does not
mount where the device's are larger.

Source: cryptsetup's wiki, DMVerity (on-disk format, version 1, hash type 1), and the kernel's
Documentation/admin-guide/device-mapper/verity.rst.  What containerd expects beside the blob:
its docs/snapshotters/erofs.md.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass

from packager.core.units import MIB

_DIGEST = 32
_SALT = bytes(32)
_SUPERBLOCK = struct.Struct("<8sII16s32sIIQH6x256s168x")

Read = Callable[[int, int], bytes]  # offset, length; all of it
Put = Callable[[int, bytes], None]  # offset, data


@dataclass(frozen=True, slots=True, kw_only=True)
class VerityTree:
    """A tree that was written: its root proves the rest."""

    root_hash: str  # hexadecimal
    hash_offset: int  # of its superblock: the bytes that it proves

    def sidecar(self) -> bytes:
        """Return the content of `NAME.erofs.dmverity` that containerd expects."""
        stated = {"roothash": self.root_hash, "hashoffset": self.hash_offset}
        return json.dumps(stated, indent=2).encode()


def verity_size(data_size: int, block: int) -> int:
    """Return the bytes that superblock and tree take behind so many bytes of data."""
    return block * (1 + sum(_level_blocks(data_size // block, block)))


def write_verity(data_size: int, block: int, read: Read, put: Put) -> VerityTree:
    """Hash `data_size` bytes, a multiple of `block`, and put the tree behind them.

    Reads every block once, and each level of the tree once more; needs little memory.
    """
    if data_size % block or not data_size:
        raise ValueError(f"{data_size} bytes are not whole blocks of {block}")
    levels = _level_blocks(data_size // block, block)  # the lowest first
    start = data_size + block
    below_at, below_blocks = 0, data_size // block
    for number, count in enumerate(levels):
        level_at = start + block * sum(levels[number + 1 :])
        _write_level(below_at, below_blocks, level_at, block, read, put)
        below_at, below_blocks = level_at, count
    root = _hash(read(below_at, block))
    put(data_size, _superblock(data_size // block, block, root).ljust(block, b"\0"))
    return VerityTree(root_hash=root.hex(), hash_offset=data_size)


def _level_blocks(data_blocks: int, block: int) -> list[int]:
    """Return how many blocks each level of hashes has, the lowest first; none for one block."""
    levels = []
    count = data_blocks
    while count > 1:
        count = -(-count * _DIGEST // block)
        levels.append(count)
    return levels


def _write_level(
    below_at: int, below_blocks: int, level_at: int, block: int, read: Read, put: Put
) -> None:
    """Write the hashes of the blocks below, filled up with zeros to a whole block."""
    step = MIB
    for offset in range(0, below_blocks * block, step):
        piece = memoryview(read(below_at + offset, min(step, below_blocks * block - offset)))
        hashes = b"".join(_hash(piece[at : at + block]) for at in range(0, len(piece), block))
        place = level_at + offset // block * _DIGEST
        if offset + step >= below_blocks * block:
            hashes += bytes(-(place - level_at + len(hashes)) % block)
        put(place, hashes)


_SALTED = hashlib.sha256(_SALT)


def _hash(data: bytes | memoryview) -> bytes:
    hashed = _SALTED.copy()
    hashed.update(data)
    return hashed.digest()


def _superblock(data_blocks: int, block: int, root: bytes) -> bytes:
    uuid = hashlib.sha256(b"packager dm-verity\0" + root).digest()[:16]
    return _SUPERBLOCK.pack(
        b"verity\0\0", 1, 1, uuid, b"sha256", block, block, data_blocks, len(_SALT), _SALT
    )
