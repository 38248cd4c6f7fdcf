"""The files of an image: its layers' entries, applied in their order.

As container engines apply them: a mark removes what lower layers have and says nothing of its
own layer; a directory over a directory gives it attributes and keeps what is in it; anything
else replaces what has its name.  Symbolic links in the way are followed below the root.

Source: the OCI image specification 1.1, layer.md, and containerd's pkg/archive/tar.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeVar

from packager.core.units import MIB
from packager.images.rootfs.listing import ListingEntry, Subtrees
from packager.images.rootfs.node import FileNode, Path

MAX_FILES = 2**21  # of an image
MAX_TEXT = 192 * MIB  # bytes of names of an image
MAX_DETOUR = 32 * MIB  # bytes of links that are followed while an image is put together
MAX_LINKS = 40  # that are followed in one path: Linux' limit
_WHITEOUT, _OPAQUE, _OF_AUFS = b".wh.", b".wh..wh..opq", b".wh..wh."
_USUAL: Path = (b"opt", b"packager")  # where our files go: mostly the only paths needed
_NO_ENTRY = FileNode(kind="directory", mode=0o755)  # as engines make a directory without an entry


@dataclass(slots=True)
class Directory:
    """A directory and what is in it."""

    node: FileNode = _NO_ENTRY
    names: dict[bytes, Directory | FileNode] = field(default_factory=dict)


Found = Directory | FileNode | None
Answer = TypeVar("Answer")
_Kept = TypeVar("_Kept", bound=Directory | FileNode)


@dataclass(frozen=True, slots=True)
class TreePlace:
    """Where a path leads to, links followed."""

    path: Path  # without links and `..`
    found: Found  # None: missing
    above: tuple[tuple[Path, Found], ...]  # the directories on the way, from the root on


class PathBlocked(ValueError):
    """A path leads nowhere: through a file, or through links without end."""


class OutsideTree(Exception):
    """A lookup of a path that the tree was made without."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(show(path))


class FileTree:
    """The files of an image. Raises `ValueError` for layers that engines could not unpack.

    With `wanted` it holds what is at these paths, above and below them, and raises `OutsideTree`
    where another is met.
    """

    def __init__(self, wanted: Subtrees = None) -> None:
        self._wanted = wanted
        self.root = Directory()
        self.removed: set[Path] = set()  # by a mark of any layer; `hidden` likewise
        self.hidden: set[Path] = set()  # directories whose lower content a layer hides
        self._count = self._text = self._detour = 0
        self._last: tuple[Path, Directory] = (), self.root

    def apply(self, entries: Sequence[ListingEntry]) -> None:
        """Apply a layer over those that are there."""
        files = []
        for entry in entries:
            self._text += sum(map(len, entry.path))
            if self._text > MAX_TEXT:
                raise ValueError(f"the names in the image take more than {MAX_TEXT // MIB} MiB")
            if any(part.startswith(_WHITEOUT) for part in entry.path):
                self._take_mark(entry.path)
            else:
                files.append(entry)
        self._last = (), self.root
        for entry in files:
            if entry.node is None:
                self._link(entry.path, entry.target)
            elif entry.node.kind == "directory":
                self._add_directory(entry.path, entry.node)
            else:
                self._put(entry.path, entry.node)

    def locate(self, path: Path, *, follow_last: bool = True) -> TreePlace:
        """Follow a path below the root; raise `PathBlocked` where it leads nowhere."""
        done, stack = self._follow(path, follow_last=follow_last)
        above = tuple((tuple(done[:depth]), stack[depth]) for depth in range(len(done)))
        return TreePlace(tuple(done), stack[-1], above)

    def files_below(self, path: Path) -> Iterator[Path]:
        """Yield what lies below a directory and is none."""
        return (found for found, node in self.walk(path) if not isinstance(node, Directory))

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, Directory | FileNode]]:
        """Yield what is at a path and all below it: parents first, names sorted."""
        if self._wanted is not None and not any(path[: len(one)] == one for one in self._wanted):
            raise OutsideTree(path)
        found = self.locate(path, follow_last=False)
        waiting: list[tuple[Path, Directory | FileNode]] = []
        if found.found is not None:
            waiting.append((found.path, found.found))
        while waiting:
            at, here = waiting.pop()
            yield at, here
            if isinstance(here, Directory):
                waiting += (
                    ((*at, name), here.names[name]) for name in sorted(here.names, reverse=True)
                )

    def _follow(self, path: Path, *, follow_last: bool) -> tuple[list[bytes], list[Found]]:
        """Return the path's parts without links, and what is at the root and at each of them."""
        waiting = list(reversed(path))
        done: list[bytes] = []
        stack: list[Found] = [self.root]
        links = 0
        while waiting:
            part, here = waiting.pop(), stack[-1]
            if isinstance(here, FileNode):
                raise PathBlocked(f"{show(done)!r} is not a directory")
            if part in (b"", b"."):
                continue
            if part == b"..":
                if here is None:
                    raise PathBlocked(f"a link leads through {show(done)!r}, which is not there")
                if done:
                    done.pop()
                    stack.pop()
                continue
            if self._wanted is not None:
                self._check_held(done, part, waiting)
            found = here.names.get(part) if here is not None else None
            is_link = isinstance(found, FileNode) and found.kind == "symlink"
            if is_link and (waiting or follow_last):
                assert isinstance(found, FileNode)
                links += 1
                if links > MAX_LINKS:
                    raise PathBlocked(f"the links at {show([*done, part])!r} have no end")
                self._detour += len(found.target) + len(waiting)
                if self._detour > MAX_DETOUR:
                    raise PathBlocked("its symbolic links lead too far")
                if found.target.startswith(b"/"):
                    done, stack = [], [self.root]
                waiting += reversed(found.target.split(b"/"))
                continue
            done.append(part)
            stack.append(found)
        return done, stack

    def _check_held(self, done: list[bytes], part: bytes, waiting: list[bytes]) -> None:
        """Raise `OutsideTree` for a path that this tree was made without."""
        path = (*done, part)
        if not any(path[: len(one)] == one[: len(path)] for one in self._wanted or ()):
            further = takewhile(lambda name: name not in (b"", b".", b".."), reversed(waiting))
            raise OutsideTree((*path, *further))

    def _take_mark(self, path: Path) -> None:
        parents, name = path[:-1], path[-1]
        if any(part.startswith(_WHITEOUT) for part in parents):
            return  # records of aufs, which engines pass over
        place = self.locate(parents)
        if name == _OPAQUE:
            self.hidden.add(place.path)
            if isinstance(place.found, Directory):
                place.found.names.clear()
        elif not name.startswith(_OF_AUFS):
            gone = name.removeprefix(_WHITEOUT)
            if gone in (b"", b".", b".."):
                raise ValueError("a mark of a removed file in it names none")
            self.removed.add((*place.path, gone))
            if isinstance(place.found, Directory):
                place.found.names.pop(gone, None)

    def _add_directory(self, path: Path, node: FileNode) -> None:
        parent = self._directory(path[:-1])
        here = parent.names.get(path[-1]) if path else self.root
        if isinstance(here, Directory):
            here.node = node
        else:
            self._keep(parent, path[-1], Directory(node))

    def _put(self, path: Path, node: FileNode) -> None:
        if not path:
            raise ValueError("its root is not a directory")
        self._keep(self._directory(path[:-1]), path[-1], node)

    def _link(self, path: Path, target: Path) -> None:
        found = self.locate(target, follow_last=False).found
        is_below = target[: len(path)] == path and len(target) > len(path)  # it would go first
        if is_below or not isinstance(found, FileNode):
            raise ValueError(f"the hard link {show(path)!r} in it leads to no file")
        self._put(path, found)

    def _directory(self, path: Path) -> Directory:
        """Return a directory; make it, and its parents, where it has no entry yet."""
        if path == self._last[0]:
            return self._last[1]
        done, stack = self._follow(path, follow_last=True)
        if isinstance(stack[-1], FileNode):
            raise PathBlocked(f"{show(done)!r} is not a directory")
        here = self.root
        for part, found in zip(done, stack[1:], strict=True):
            here = found if isinstance(found, Directory) else self._keep(here, part, Directory())
        self._last = path, here  # most entries lie beside the one before
        return here

    def _keep(self, parent: Directory, name: bytes, what: _Kept) -> _Kept:
        self._count += 1
        if self._count > MAX_FILES:
            raise ValueError(f"the image holds more than {MAX_FILES:,} files")
        if name in parent.names:
            self._last = (), self.root  # it may be below a removed path
        parent.names[name] = what
        return what


class ImageFiles:
    """The files of an image, of which those alone are looked at that a question is about."""

    def __init__(self, load: Callable[[Subtrees], FileTree] = FileTree) -> None:
        self._load = load
        self._wanted: frozenset[Path] = frozenset({_USUAL})
        self._tree: FileTree | None = None

    def ask(self, question: Callable[[FileTree], Answer]) -> Answer:
        """Return the answer; the tree is made anew as often as it meets another path."""
        while True:
            try:
                self._tree = self._tree or self._load(self._wanted)
                return question(self._tree)
            except OutsideTree as outside:
                self._wanted |= {outside.path}
                self._tree = None


def parts_of(path: str) -> Path:
    """Return the parts of an absolute path of an image."""
    return tuple(part for part in path.encode("utf-8", "surrogateescape").split(b"/") if part)


def show(path: Sequence[bytes]) -> str:
    """Return a path as it is written."""
    return "/" + b"/".join(path).decode("utf-8", "surrogateescape")
