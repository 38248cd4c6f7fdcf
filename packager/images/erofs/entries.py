"""Conversion of a layer's entries, in order, to the tree that an engine would unpack.

A later entry replaces an earlier one of its name.  A whiteout, `.wh.NAME`, becomes overlayfs' own
mark for a removed file, and `.wh..wh..opq` that of a directory which hides what lies below it.

Source of the marks: the kernel's Documentation/filesystems/overlayfs.rst, and the OCI image
specification's layer.md: a mark says nothing about files of its own layer.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from packager.images.erofs.nodes import ROOT_NODE, LayerNotMountable, LayerTree
from packager.images.rootfs.node import FileNode, Path

MAX_ENTRIES = 2**20  # names that a layer has, directories without an entry included
_WHITEOUT, _OPAQUE, _OF_AUFS = b".wh.", b".wh..wh..opq", b".wh..wh."
_OVERLAY_OPAQUE = (b"trusted.overlay.opaque", b"y")
_REMOVED = FileNode(kind="character", mode=0)  # of device 0, 0
_NO_ENTRY = FileNode(kind="directory", mode=0o755)


class TreeBuilder:
    """Applies entries one after another. Raises `LayerNotMountable`."""

    def __init__(self) -> None:
        self._nodes: list[FileNode] = [_NO_ENTRY]
        self._directories: dict[int, dict[bytes, int]] = {ROOT_NODE: {}}
        self._opaque: set[int] = set()
        self._removed: dict[int, set[bytes]] = {}  # names in each directory
        self._marks = 0

    def add(self, path: Path, node: FileNode) -> None:
        """Add a file, or give a directory that is there its attributes."""
        if self._take_mark(path):
            return
        if node.kind == "directory":
            number = self._find(path)
            if number in self._directories:
                self._nodes[number] = node
                return
        if not path:
            raise LayerNotMountable("its root is not a directory")
        self._put(path, node)

    def link(self, path: Path, target: Path) -> None:
        """Add a name of a file that is there."""
        if self._take_mark(path):
            return
        number = self._find(target)
        is_below = target[: len(path)] == path and len(target) > len(path)  # it would go first
        if number is None or number in self._directories or is_below:
            raise LayerNotMountable("a hard link in it leads to no file of the layer")
        if path != target:
            self._put(path, number)

    def build(self, tar_size: int) -> LayerTree:
        """Return the tree. No entries may be added afterwards."""
        for directory in self._removed.keys() & self._directories.keys():
            names = self._directories[directory]
            for gone in sorted(self._removed[directory]):
                if gone not in names:
                    names[gone] = self._keep(_REMOVED)
                elif names[gone] in self._directories:  # what lay below stays removed
                    self._opaque.add(names[gone])
        for number in self._opaque & self._directories.keys():
            node = self._nodes[number]
            marks = {**dict(node.xattrs), _OVERLAY_OPAQUE[0]: _OVERLAY_OPAQUE[1]}
            self._nodes[number] = replace(node, xattrs=tuple(sorted(marks.items())))
        return LayerTree(
            nodes=tuple(self._nodes),
            directories=MappingProxyType(self._directories),
            tar_size=tar_size,
        )

    def _take_mark(self, path: Path) -> bool:
        """Note what an entry marks; return whether it is a mark, and no file."""
        if not any(part.startswith(_WHITEOUT) for part in path):
            return False
        parents, name = path[:-1], path[-1]
        marked = [part for part in parents if part.startswith(_WHITEOUT)]
        if any(not part.startswith(_OF_AUFS) for part in marked):
            raise LayerNotMountable("a file in it lies below the mark of a removed file")
        if marked:
            return True  # aufs' own records, which engines pass over
        if name == _OPAQUE:
            self._opaque.add(self._need_directory(parents))
        elif not name.startswith(_OF_AUFS):
            gone = name.removeprefix(_WHITEOUT)
            if gone in (b"", b".", b".."):
                raise LayerNotMountable("a mark of a removed file names none")
            self._marks += 1
            self._check_count()
            self._removed.setdefault(self._need_directory(parents), set()).add(gone)
        return True

    def _find(self, path: Path) -> int | None:
        number = ROOT_NODE
        for part in path:
            found = self._directories.get(number, {}).get(part)
            if found is None:
                return None
            number = found
        return number

    def _put(self, path: Path, what: FileNode | int) -> None:
        """Replace what has the name by a file, new or there."""
        parents, name = path[:-1], path[-1]
        names = self._directories[self._need_directory(parents)]
        if name in names:
            self._drop(names.pop(name))
        names[name] = what if isinstance(what, int) else self._keep(what)
        if isinstance(what, FileNode) and what.kind == "directory":
            self._directories[names[name]] = {}

    def _need_directory(self, path: Path) -> int:
        """Return a directory's place; make it, and its parents, where it has no entry yet."""
        number = ROOT_NODE
        for part in path:
            names = self._directories.get(number)
            if names is None:
                break
            if part not in names:
                names[part] = self._keep(_NO_ENTRY)
                self._directories[names[part]] = {}
            number = names[part]
        if number not in self._directories:
            raise LayerNotMountable("a file in it lies below something that is no directory")
        return number

    def _keep(self, node: FileNode) -> int:
        self._nodes.append(node)
        self._check_count()
        return len(self._nodes) - 1

    def _check_count(self) -> None:
        if len(self._nodes) + self._marks > MAX_ENTRIES:
            raise LayerNotMountable(f"it holds more than {MAX_ENTRIES:,} files")

    def _drop(self, number: int) -> None:
        """Forget a directory and all below it; other files may have more names."""
        waiting = [number]
        while waiting:
            waiting += self._directories.pop(waiting.pop(), {}).values()
