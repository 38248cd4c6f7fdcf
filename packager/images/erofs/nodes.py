"""The files of one layer as values: what a file system of it holds, and where the data lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packager.core.errors import PackagerError
from packager.images.rootfs.node import FileNode

ROOT = b""  # the path of the layer's own root
ROOT_NODE = 0  # its place in `LayerTree.nodes`


class LayerNotMountable(PackagerError):
    """A layer that no file system over its tar can show: broken, or of a kind that is refused."""

    exit_code = 65

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the layer cannot be mounted as it is: {reason}",
            hint="use the image's plain form, which container engines unpack",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTree:
    """All names of a layer and what they name.

    Kept by directory, so that memory follows what the tar holds: whole paths would grow with
    the square of its depth.  Nodes without a name are files that a later entry replaced.
    """

    nodes: tuple[FileNode, ...]  # the root is the first
    directories: Mapping[int, Mapping[bytes, int]]  # each directory's names, all as places
    tar_size: int  # bytes of the uncompressed tar

    def walk(self) -> Iterator[tuple[bytes, int]]:
        """Yield every path with its node's place: parents first, names of a directory sorted.

        Paths are relative to the layer's root, without `.` and `..`; the root's own is `ROOT`.
        """
        waiting = [(ROOT, ROOT_NODE)]
        while waiting:
            path, number = waiting.pop()
            yield path, number
            names = self.directories.get(number, {})
            before = path + b"/" if path else b""
            waiting += ((before + name, names[name]) for name in sorted(names, reverse=True))
