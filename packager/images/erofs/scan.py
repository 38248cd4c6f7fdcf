"""Reading the headers of a tar as it passes: names, modes, and where the data lie.

What a container engine would unpack is what the tree holds: a later entry replaces an earlier
one of its name, `.wh.NAME` becomes overlayfs' own mark for a removed file, and `.wh..wh..opq`
that of a directory which hides what lies below it.  Everything that a file system could not show
in the same way (sparse files, unknown types, names that lead out of the layer) is refused.

Source of the marks: the kernel's Documentation/filesystems/overlayfs.rst.
Source of the tar formats: POSIX.1-2017 pax, and GNU tar's manual.
"""

from __future__ import annotations

import tarfile
from dataclasses import replace
from types import MappingProxyType

from packager.core.image import Blob, Inline
from packager.errors import PackagerError
from packager.images.erofs.nodes import ROOT, LayerTree, Node, NodeKind

BLOCK = 512
MAX_EXTENSION = 1024 * 1024  # bytes of a PAX header or a long name
MAX_ENTRIES = 4_000_000
MAX_NAME = 255  # bytes between two slashes: Linux' limit
MAX_PATH = 4096  # bytes of a name or of a link's target: Linux' limit
_REMOVED, _OPAQUE = b".wh.", b".wh..wh..opq"
_OVERLAY_OPAQUE = (b"trusted.overlay.opaque", b"y")
_XATTR = "SCHILY.xattr."
_KINDS: dict[bytes, NodeKind] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "symlink",
    tarfile.CHRTYPE: "character",
    tarfile.BLKTYPE: "block",
    tarfile.FIFOTYPE: "fifo",
}


class LayerNotMountable(PackagerError):
    """A layer that no file system over its tar can show: broken, or of a kind that is refused."""

    exit_code = 65

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the layer cannot be mounted as it is: {reason}",
            hint="use the image's plain form, which container engines unpack",
        )


def scan_blob(blob: Blob) -> LayerTree:
    """Return the tree of a layer of our own, whose headers are inline: reads no file."""
    scanner = TarScanner()
    for segment in blob.segments:
        if isinstance(segment, Inline):
            scanner.feed(segment.data)
        else:
            scanner.skip(segment.length)
    return scanner.finish()


class TarScanner:
    """Takes an uncompressed tar in order, in pieces of any size; keeps headers only.

    Raises `LayerNotMountable` as soon as something is wrong.
    """

    def __init__(self) -> None:
        self._position = 0  # bytes that have passed
        self._wanted = BLOCK  # bytes of the header or extension that is being collected
        self._collected = bytearray()
        self._content = 0  # bytes of content and padding that are still to pass
        self._extension: tarfile.TarInfo | None = None  # whose body is being collected
        self._pax: dict[str, str] = {}  # for the next entry
        self._long: dict[bytes, bytes] = {}  # GNU's long name and long link for the next entry
        self._ended = False
        self._tree = _TreeBuilder()

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes."""
        view = memoryview(data)
        while len(view):
            if self._ended:
                self._position += len(view)
                return
            if self._content:
                count = min(self._content, len(view))
                self._content -= count
            else:
                count = min(self._wanted - len(self._collected), len(view))
                self._collected += view[:count]
            self._position += count
            view = view[count:]
            if not self._content and len(self._collected) == self._wanted:
                self._take()

    def skip(self, length: int) -> None:
        """Take bytes of content that are not at hand."""
        if not self._ended and length > self._content:
            raise LayerNotMountable("a header of it is not at hand")
        if not self._ended:
            self._content -= length
        self._position += length

    def finish(self) -> LayerTree:
        """Return the tree; raises where the tar ended within an entry."""
        if self._content or self._collected or self._pax or self._long:
            raise LayerNotMountable("its tar ends within an entry")
        return self._tree.build(self._position)

    def _take(self) -> None:
        block = bytes(self._collected)
        self._collected.clear()
        if self._extension is not None:
            self._take_extension(self._extension, block)
            return
        if not any(block):
            self._ended = True
            return
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError, OverflowError) as error:
            raise LayerNotMountable(f"a header of its tar is broken: {error}") from error
        if member.size < 0:
            raise LayerNotMountable("a size in its tar is negative")
        if member.type in (
            tarfile.XHDTYPE,
            tarfile.XGLTYPE,
            tarfile.SOLARIS_XHDTYPE,
            tarfile.GNUTYPE_LONGNAME,
            tarfile.GNUTYPE_LONGLINK,
        ):
            if member.size > MAX_EXTENSION:
                raise LayerNotMountable("a header of its tar is over 1 MiB")
            self._extension = member
            self._wanted = -(-member.size // BLOCK) * BLOCK
            if not self._wanted:
                self._take_extension(member, b"")
            return
        self._take_member(member)

    def _take_extension(self, member: tarfile.TarInfo, body: bytes) -> None:
        self._extension = None
        self._wanted = BLOCK
        body = body[: member.size]
        if member.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            self._long[member.type] = body.partition(b"\0")[0]
        elif member.type != tarfile.XGLTYPE:  # engines pass over global headers
            self._pax = _parse_pax(body)

    def _take_member(self, member: tarfile.TarInfo) -> None:
        pax, long = self._pax, self._long
        self._pax, self._long = {}, {}
        if any(name.startswith("GNU.sparse.") for name in pax) or member.type in (
            tarfile.GNUTYPE_SPARSE,
        ):
            raise LayerNotMountable("it holds a sparse file")
        name = long.get(tarfile.GNUTYPE_LONGNAME, _bytes(pax.get("path", member.name)))
        target = long.get(tarfile.GNUTYPE_LONGLINK, _bytes(pax.get("linkpath", member.linkname)))
        kind = "directory" if member.isdir() else _KINDS.get(member.type)
        if kind is None and member.type != tarfile.LNKTYPE:
            raise LayerNotMountable(f"it holds an entry of the unknown type {member.type!r}")
        size = _number(pax.get("size"), member.size) if kind == "file" else 0
        path = _path_of(name)
        if member.type == tarfile.LNKTYPE:
            self._tree.link(path, _path_of(target))
        else:
            assert kind is not None, "only hard links have none"
            node = Node(
                kind=kind,
                mode=member.mode & 0o7777,
                uid=_number(pax.get("uid"), member.uid),
                gid=_number(pax.get("gid"), member.gid),
                mtime=max(0, int(_seconds(pax.get("mtime"), member.mtime))),
                size=size,
                offset=self._position if kind == "file" else 0,
                target=_target_of(target) if kind == "symlink" else b"",
                device=(member.devmajor, member.devminor),
                xattrs=_xattrs(pax),
            )
            self._tree.add(path, node)
        self._content = -(-size // BLOCK) * BLOCK


class _TreeBuilder:
    """Applies entries in order, as an engine that unpacks them does."""

    def __init__(self) -> None:
        self._nodes: list[Node] = [Node(kind="directory", mode=0o755)]
        self._names: dict[bytes, int] = {ROOT: 0}
        self._children: dict[bytes, set[bytes]] = {ROOT: set()}  # paths, of each directory
        self._opaque: set[bytes] = set()
        self._removed: set[bytes] = set()

    def add(self, path: bytes, node: Node) -> None:
        parent, _, name = path.rpartition(b"/")
        if name == _OPAQUE:
            self._need_directory(parent)
            self._opaque.add(parent)
            return
        if name.startswith(_REMOVED):
            gone = path[: len(path) - len(name)] + name.removeprefix(_REMOVED)
            if gone == path[: len(path) - len(name)] or name == _REMOVED + b"." * 2:
                raise LayerNotMountable("a mark of a removed file names none")
            if not name.startswith(_REMOVED + _REMOVED):  # aufs' own records
                self._need_directory(parent)
                self._removed.add(gone)
            return
        if node.kind == "directory" and path in self._children:
            self._nodes[self._names[path]] = node
            return
        self._put(path, self._keep(node))
        if len(self._nodes) > MAX_ENTRIES:
            raise LayerNotMountable(f"it holds more than {MAX_ENTRIES:,} files")
        if node.kind == "directory":
            self._children[path] = set()

    def link(self, path: bytes, target: bytes) -> None:
        number = self._names.get(target)
        if number is None or target in self._children:
            raise LayerNotMountable("a hard link in it leads to no file of the layer")
        if path != target:
            self._put(path, number)

    def build(self, tar_size: int) -> LayerTree:
        for gone in sorted(self._removed - self._names.keys()):
            self._put(gone, self._keep(Node(kind="character", mode=0)))
        for path in self._opaque & self._children.keys():
            number = self._names[path]
            node = self._nodes[number]
            marks = {**dict(node.xattrs), _OVERLAY_OPAQUE[0]: _OVERLAY_OPAQUE[1]}
            self._nodes[number] = replace(node, xattrs=tuple(sorted(marks.items())))
        return LayerTree(
            nodes=tuple(self._nodes), names=MappingProxyType(self._names), tar_size=tar_size
        )

    def _keep(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _put(self, path: bytes, number: int) -> None:
        if path == ROOT:
            raise LayerNotMountable("its root is not a directory")
        self._drop(path)
        parent = path.rpartition(b"/")[0]
        self._need_directory(parent)
        self._children[parent].add(path)
        self._names[path] = number

    def _need_directory(self, path: bytes) -> None:
        """Make a directory, and its parents, where the tar has no entry for it yet."""
        missing: list[bytes] = []
        while path not in self._children:
            missing.append(path)
            path = path.rpartition(b"/")[0]
        for path in reversed(missing):
            if path in self._names:
                raise LayerNotMountable("a file in it lies below something that is no directory")
            self._names[path] = self._keep(Node(kind="directory", mode=0o755))
            self._children[path] = set()
            self._children[path.rpartition(b"/")[0]].add(path)

    def _drop(self, path: bytes) -> None:
        """Remove a name and all below it."""
        pending = [path]
        while pending:
            name = pending.pop()
            if name in self._names:
                del self._names[name]
                pending.extend(self._children.pop(name, ()))
                self._children.get(name.rpartition(b"/")[0], set()).discard(name)


def _parse_pax(body: bytes) -> dict[str, str]:
    """Return the records of a PAX header; values that are not UTF-8 keep their bytes."""
    found: dict[str, str] = {}
    at = 0
    while at < len(body):
        space = body.find(b" ", at, at + 20)
        digits = body[at:space] if space > at else b""
        length = int(digits) if digits.isdigit() else 0
        record = body[space + 1 : at + length]
        if not length or at + length > len(body) or not record.endswith(b"\n"):
            raise LayerNotMountable("a PAX header of its tar is broken")
        key, equals, value = record[:-1].partition(b"=")
        if not equals:
            raise LayerNotMountable("a PAX header of its tar is broken")
        found[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        at += length
    return found


def _xattrs(pax: dict[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    named = {
        _bytes(name.removeprefix(_XATTR)): _bytes(value)
        for name, value in pax.items()
        if name.startswith(_XATTR)
    }
    return tuple(sorted(named.items()))


def _path_of(name: bytes) -> bytes:
    """Return a name relative to the layer's root; raise where it leads out of it."""
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if b".." in parts or b"\0" in name:
        raise LayerNotMountable("a name in it leads out of the layer")
    if any(len(part) > MAX_NAME for part in parts) or len(name) > MAX_PATH:
        raise LayerNotMountable(f"a name in it is longer than {MAX_NAME} or {MAX_PATH} bytes")
    return b"/".join(parts)


def _target_of(target: bytes) -> bytes:
    if not target or b"\0" in target or len(target) >= MAX_PATH:
        raise LayerNotMountable("a symbolic link in it leads nowhere")
    return target


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _number(text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise LayerNotMountable("a number in its tar is none")
    return int(text)


def _seconds(text: str | None, otherwise: float) -> float:
    if text is None:
        return otherwise
    whole = text.partition(".")[0]
    digits = whole.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 13):
        raise LayerNotMountable("a time in its tar is none")
    return int(whole)
