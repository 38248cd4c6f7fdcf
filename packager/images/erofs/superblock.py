"""Superblocks of EROFS file systems: what they say of themselves, and whether we made them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from packager.images.erofs.metadata import HEAD

_AT, _MAGIC = 1024, 0xE0F5E1E2
_OURS = b"packager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Superblock:
    """What a file system's first 4 KiB say of it. Anybody may have written them."""

    block_size: int
    size: int  # bytes of the file system, without what lies behind it
    metadata_at: int  # byte where the inodes begin
    is_ours: bool  # by its volume's name, which is a claim and no proof


def parse_superblock(head: bytes) -> Superblock | None:
    """Parse the first 4 KiB of a file; None where they are not of an EROFS file system."""
    if len(head) < HEAD or struct.unpack_from("<I", head, _AT)[0] != _MAGIC:
        return None
    bits = head[_AT + 12]
    if not 9 <= bits <= 16:
        return None
    blocks, metadata_block = struct.unpack_from("<II", head, _AT + 36)
    name = head[_AT + 64 : _AT + 80].rstrip(b"\0")
    return Superblock(
        block_size=1 << bits,
        size=blocks << bits,
        metadata_at=metadata_block << bits,
        is_ours=name == _OURS,
    )
