"""A file of any kind as a layer's entry describes it.

Names are bytes, as in the tar: they may not be UTF-8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NodeKind = Literal["file", "directory", "symlink", "character", "block", "fifo"]
Path = tuple[bytes, ...]  # the parts of a path below the layer's root


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNode:
    """A file of any kind, without its name: hard links are several names of one node."""

    kind: NodeKind
    mode: int  # permission bits, 0o7777 at most
    uid: int = 0
    gid: int = 0
    mtime: int = 0  # seconds since 1970
    mtime_ns: int = 0  # nanoseconds beside them, below a second
    size: int = 0  # bytes of a regular file
    offset: int = 0  # of its data in the uncompressed tar
    target: bytes = b""  # of a symbolic link
    device: tuple[int, int] = (0, 0)  # major and minor number
    xattrs: tuple[tuple[bytes, bytes], ...] = ()  # full names, sorted
    content: bytes | None = None  # of the few small files that are looked into
