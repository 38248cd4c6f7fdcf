"""What one layer holds, by its tar's headers: the entries in their order, and as a document.

Marks of removed files are entries like others here; `tree.py` applies them.  Of the files that say
who users are, the content is kept, too; unused attributes of a file (device numbers, nanoseconds)
are not.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from packager.core.units import MIB
from packager.images.rootfs.node import FileNode, NodeKind, Path

LISTING_FORMAT = 2
MAX_ENTRIES = 2**20  # of one layer; those of programs have 10,000 to 200,000
MAX_TEXT = 64 * MIB  # bytes of names, targets and attributes of one layer
_KINDS: tuple[NodeKind, ...] = ("file", "directory", "symlink", "character", "block", "fifo")
_HARD_LINK = "link"
_CONTENT = "content"  # of the file of the line before
KEPT = frozenset({(b"etc", b"passwd"), (b"etc", b"group")})  # files whose content is kept
MAX_KEPT = 256 * 1024
_WHITEOUT, _OPAQUE = b".wh.", b".wh..wh..opq"

Subtrees = frozenset[Path] | None  # paths that are looked at, with all below; None: everything


@dataclass(frozen=True, slots=True)
class ListingEntry:
    """An entry of a layer: a file of its own, or another name of one."""

    path: Path
    node: FileNode | None  # None of a hard link
    target: Path = ()  # of a hard link: the path of the file


class ListingWriter:
    """Writes the entries of one layer as they come; raises `ValueError` beyond the bounds."""

    def __init__(self, name: str) -> None:
        self._packing = zlib.compressobj()
        head = json.dumps({"format": LISTING_FORMAT, "layer": name}).encode()
        self._pieces = [self._packing.compress(head)]
        self._entries = self._text = 0

    def add(self, path: Path, node: FileNode) -> None:
        """Add a file of any kind, or a mark of a removed one."""
        self._count(path, node.target, *(text for pair in node.xattrs for text in pair))
        row = [_text(b"/".join(path)), node.kind, node.mode, node.uid, node.gid, node.size]
        xattrs = [[_text(name), _text(value)] for name, value in node.xattrs]
        more = [_text(node.target), xattrs] if node.target or xattrs else []
        self._write([*row, node.mtime, *more])

    def keeps(self, path: Path, node: FileNode) -> bool:
        """Whether to keep the content of the file just added."""
        return path in KEPT and node.kind == "file" and node.size <= MAX_KEPT

    def content(self, path: Path, data: bytes) -> None:
        """Add the content of the file that was added last."""
        self._write([_text(b"/".join(path)), _CONTENT, b64encode(data).decode()])

    def link(self, path: Path, target: Path) -> None:
        """Add another name of a file."""
        self._count(path, *target)
        self._write([_text(b"/".join(path)), _HARD_LINK, _text(b"/".join(target))])

    def document(self) -> bytes:
        """Return the compressed document, with its checksum. No entries may be added afterwards."""
        return b"".join((*self._pieces, self._packing.flush()))

    def _write(self, row: list[Any]) -> None:
        line = b"\n" + json.dumps(row, separators=(",", ":")).encode()
        if piece := self._packing.compress(line):
            self._pieces.append(piece)

    def _count(self, path: Path, *texts: bytes) -> None:
        self._entries += 1
        self._text += sum(map(len, path)) + sum(map(len, texts))
        if self._entries > MAX_ENTRIES:
            raise ValueError(f"it holds more than {MAX_ENTRIES:,} files")
        if self._text > MAX_TEXT:
            raise ValueError(f"the names in it take more than {MAX_TEXT // MIB} MiB")


def read_listing(name: str, document: bytes, wanted: Subtrees = None) -> list[ListingEntry]:
    """Return the entries of a document; raise `ValueError` where it is not whole, or another's.

    With `wanted`, only those at these paths, above and below them.
    """
    lines = _lines_of(document)
    if json.loads(next(lines)) != {"format": LISTING_FORMAT, "layer": name}:
        raise ValueError("it is the listing of another layer")
    beginnings = (b'["',) if wanted is None else _beginnings(wanted)
    shared: dict[bytes, bytes] = {}  # one object for equal names: directories repeat
    try:
        found: list[ListingEntry] = []
        for line in lines:
            if line.startswith(beginnings):
                _take(found, json.loads(line), shared)
        return found
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"a line of it is none: {error}") from error


def _lines_of(document: bytes) -> Iterator[bytes]:
    """Yield the lines of a document; raise `ValueError` at its end where it is not whole."""
    unpacking = zlib.decompressobj()
    rest, last = document, b""
    try:
        while rest and not unpacking.eof:
            *lines, last = (last + unpacking.decompress(rest, MIB)).split(b"\n")
            yield from lines
            rest = unpacking.unconsumed_tail
    except zlib.error as error:
        raise ValueError(str(error)) from error
    yield last
    if not unpacking.eof or unpacking.unused_data:  # zlib has compared its checksum
        raise ValueError("it is cut off, or goes on behind its end")


def _beginnings(wanted: Iterable[Path]) -> tuple[bytes, ...]:
    """Return how the lines of entries begin that say something of these paths."""
    found = set()
    for path in wanted:
        found.add(_spelled(path) + b"/")
        for depth in range(len(path) + 1):
            above = path[:depth]
            found |= {_spelled(above) + b'"', _spelled((*above, _OPAQUE)) + b'"'}
            if above:
                found.add(_spelled((*above[:-1], _WHITEOUT + above[-1])) + b'"')
    return tuple(found)


def _spelled(path: Path) -> bytes:
    """Return the beginning of the line of a path."""
    return b"[" + json.dumps(_text(b"/".join(path)))[:-1].encode()


def _take(found: list[ListingEntry], row: list[Any], shared: dict[bytes, bytes]) -> None:
    """Add the entry of a line, or what it says of the one before."""
    if row[1] != _CONTENT:
        found.append(_entry(row, shared))
        return
    last = found[-1]
    if last.node is None or last.path != _parts(row[0], shared):
        raise ValueError("it has the content of no file")
    found[-1] = replace(last, node=replace(last.node, content=b64decode(row[2], validate=True)))


def _entry(row: list[Any], shared: dict[bytes, bytes]) -> ListingEntry:
    path = _parts(row[0], shared)
    if row[1] == _HARD_LINK:
        return ListingEntry(path, None, _parts(row[2], shared))
    kind, mode, uid, gid, size, mtime = row[1:7]
    if kind not in _KINDS:
        raise ValueError("it has an entry of an unknown kind")
    target, xattrs = row[7:9] if len(row) > 7 else ("", [])
    node = FileNode(
        kind=kind,
        mode=mode,
        uid=uid,
        gid=gid,
        size=size,
        mtime=mtime,
        target=_bytes(target),
        xattrs=tuple((_bytes(name), _bytes(value)) for name, value in xattrs),
    )
    return ListingEntry(path, node)


def _parts(text: str, shared: dict[bytes, bytes]) -> Path:
    parts = _bytes(text).split(b"/") if text else ()
    return tuple(shared.setdefault(part, part) for part in parts)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
