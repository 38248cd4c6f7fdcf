"""The files of one layer as values: what a file system of it holds, and where the data lie.

Names are bytes, as in the tar: nothing says that a stranger's are UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

NodeKind = Literal["file", "directory", "symlink", "character", "block", "fifo"]
ROOT = b""  # the path of the layer's own root


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A file of any kind, without its name: hard links are several names of one node."""

    kind: NodeKind
    mode: int  # permission bits, 0o7777 at most
    uid: int = 0
    gid: int = 0
    mtime: int = 0  # seconds since 1970
    size: int = 0  # bytes of a regular file
    offset: int = 0  # of its data in the uncompressed tar
    target: bytes = b""  # of a symbolic link
    device: tuple[int, int] = (0, 0)  # major and minor number
    xattrs: tuple[tuple[bytes, bytes], ...] = ()  # full names, sorted


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTree:
    """All names of a layer and what they name.

    Every parent of a name is in it, as a directory; `ROOT` is.  Paths are relative to the
    layer's root, without `.` and `..`, and have no slash at their ends.
    """

    nodes: tuple[Node, ...]
    names: Mapping[bytes, int]  # path → place in `nodes`
    tar_size: int  # bytes of the uncompressed tar
