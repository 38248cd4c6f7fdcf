"""What one layer holds, by its tar's headers: the entries in their order, and as a document.

Marks of removed files are entries like others here; `tree.py` applies them.  Attributes of a
file that nobody asks for later (device numbers, nanoseconds) are not kept.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

from packager.core.units import MIB
from packager.core.values import dataclass
from packager.images.rootfs.node import Node, NodeKind, Path

LISTING_FORMAT = 1
MAX_ENTRIES = 2**20  # of one layer; those of programs have 10,000 to 200,000
MAX_TEXT = 64 * MIB  # bytes of names, targets and attributes of one layer
_MAX_DOCUMENT = 512 * MIB  # a listing, unpacked
_KINDS: tuple[NodeKind, ...] = ("file", "directory", "symlink", "character", "block", "fifo")
_HARD_LINK = "link"
_MARK, _OPAQUE = b".wh.", b".wh..wh..opq"

Subtrees = frozenset[Path] | None  # paths that are looked at, with all below; None: everything


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a layer: a file of its own, or another name of one."""

    path: Path
    node: Node | None  # None of a hard link
    target: Path = ()  # of a hard link: the path of the file


class EntryList:
    """Collects the entries of one layer; raises `ValueError` beyond the bounds."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._text = 0
        self._parts: dict[bytes, bytes] = {}  # one object for equal names: directories repeat

    def add(self, path: Path, node: Node) -> None:
        """Add a file of any kind, or a mark of a removed one."""
        self._count(path, node.target, *(text for pair in node.xattrs for text in pair))
        self.entries.append(Entry(self._shared(path), node))

    def link(self, path: Path, target: Path) -> None:
        """Add another name of a file."""
        self._count(path, *target)
        self.entries.append(Entry(self._shared(path), None, self._shared(target)))

    def _shared(self, path: Path) -> Path:
        return tuple(self._parts.setdefault(part, part) for part in path)

    def _count(self, path: Path, *texts: bytes) -> None:
        self._text += sum(map(len, path)) + sum(map(len, texts))
        if len(self.entries) >= MAX_ENTRIES:
            raise ValueError(f"it holds more than {MAX_ENTRIES:,} files")
        if self._text > MAX_TEXT:
            raise ValueError(f"the names in it take more than {MAX_TEXT // MIB} MiB")


def write_listing(name: str, entries: Iterable[Entry]) -> bytes:
    """Return the entries of a layer as a compressed document with its checksum."""
    lines = [json.dumps({"format": LISTING_FORMAT, "layer": name}).encode()]
    lines += (json.dumps(_row(entry), separators=(",", ":")).encode() for entry in entries)
    return zlib.compress(b"\n".join(lines), 6)


def read_listing(name: str, document: bytes, wanted: Subtrees = None) -> list[Entry]:
    """Return the entries of a document; raise `ValueError` where it is not whole, or another's.

    With `wanted`, only those at these paths, above and below them.
    """
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(document, _MAX_DOCUMENT)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof or unpacking.unused_data:  # zlib has compared its checksum
        raise ValueError("it is cut off, or too long")
    head, *lines = text.split(b"\n")
    if json.loads(head) != {"format": LISTING_FORMAT, "layer": name}:
        raise ValueError("it is the listing of another layer")
    found = EntryList()
    beginnings = (b'["',) if wanted is None else _beginnings(wanted)
    try:
        for line in lines:
            if line.startswith(beginnings):
                _take(found, json.loads(line))
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"a line of it is none: {error}") from error
    return found.entries


def _beginnings(wanted: Iterable[Path]) -> tuple[bytes, ...]:
    """Return how the lines of entries begin that say something of these paths."""
    found = set()
    for path in wanted:
        found.add(_spelled(path) + b"/")
        for depth in range(len(path) + 1):
            above = path[:depth]
            found |= {_spelled(above) + b'"', _spelled((*above, _OPAQUE)) + b'"'}
            if above:
                found.add(_spelled((*above[:-1], _MARK + above[-1])) + b'"')
    return tuple(found)


def _spelled(path: Path) -> bytes:
    """Return the beginning of the line of a path."""
    return b"[" + json.dumps(_text(b"/".join(path)))[:-1].encode()


def _row(entry: Entry) -> list[Any]:
    path = _text(b"/".join(entry.path))
    node = entry.node
    if node is None:
        return [path, _HARD_LINK, _text(b"/".join(entry.target))]
    row = [path, node.kind, node.mode, node.uid, node.gid, node.size, node.mtime]
    xattrs = [[_text(name), _text(value)] for name, value in node.xattrs]
    return [*row, _text(node.target), xattrs] if node.target or xattrs else row


def _take(found: EntryList, row: list[Any]) -> None:
    path = _parts(row[0])
    if row[1] == _HARD_LINK:
        found.link(path, _parts(row[2]))
        return
    kind, mode, uid, gid, size, mtime = row[1:7]
    if kind not in _KINDS:
        raise ValueError("it has an entry of an unknown kind")
    target, xattrs = row[7:9] if len(row) > 7 else ("", [])
    node = Node(
        kind=kind,
        mode=mode,
        uid=uid,
        gid=gid,
        size=size,
        mtime=mtime,
        target=_bytes(target),
        xattrs=tuple((_bytes(name), _bytes(value)) for name, value in xattrs),
    )
    found.add(path, node)


def _parts(text: str) -> Path:
    return tuple(_bytes(text).split(b"/")) if text else ()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
