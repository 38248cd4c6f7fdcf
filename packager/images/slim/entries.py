"""Entries of a tar stream with their bytes as they stand: what is kept is kept bit by bit.

A layer is somebody else's file.  Nothing is unpacked, so that no name can lead anywhere; names
that engines read differently, headers without an end and streams that are cut are refused.
Source of the formats: pax(1) of POSIX.1-2017, and the GNU tar manual, "Basic Tar Format".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Literal

from packager.core.documents import shorten
from packager.core.values import dataclass
from packager.errors import ProtocolFailed

BLOCK = 512
END = bytes(2 * BLOCK)
LONGEST_RECORD = 1024 * 1024  # of a name or of PAX records; Go's archive/tar takes no more either
MOST_HEADERS = 8  # of one entry: global and extended records, long name, long link, its own

Kind = Literal["file", "directory", "link", "symlink", "other"]

_KINDS: dict[bytes, Kind] = {b"0": "file", b"\0": "file", b"7": "file", b"S": "file"}
_BARE: dict[bytes, Kind] = {  # that have no data, whatever their size says
    b"1": "link",
    b"2": "symlink",
    b"3": "other",
    b"4": "other",
    b"5": "directory",
    b"6": "other",
}
_OF_ALL = frozenset({"path", "linkpath", "size", "GNU.sparse.name"})


class LayerRefused(ProtocolFailed):
    """A layer is not a tar archive that every container engine reads alike."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"a layer cannot be read as a tar archive: {reason}",
            hint="the image is damaged or was made to mislead: build or pull it again",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry; `head` are all of its header blocks, `stored` the data behind them."""

    path: str  # without `/` or `./` in front of it, or `/` behind
    kind: Kind
    target: str  # of a hard link: a path like `path`; else ""
    head: bytes
    size: int  # bytes of data
    stored: int  # with the padding to whole blocks


class TarStream:
    """Reads entries one after another; what is not taken of one's data is passed over."""

    def __init__(self, chunks: Iterable[bytes | memoryview]) -> None:
        self._source = _Source(chunks)
        self._left = 0  # stored bytes of the entry that was given last

    def __iter__(self) -> Iterator[Entry]:
        while (entry := self._next()) is not None:
            self._left = entry.stored
            yield entry
            for _ in self.data():
                pass
        self._source.drain()

    def data(self) -> Iterator[memoryview]:
        """Yield the stored bytes of the current entry, in pieces that are valid until the next."""
        while self._left:
            piece = self._source.piece(self._left)
            self._left -= len(piece)
            yield piece

    def _next(self) -> Entry | None:
        meta = _Meta()
        while True:
            block = self._source.take(BLOCK, may_end=not meta.head)
            if not block or not any(block):
                if meta.head:
                    raise LayerRefused("it ends behind the extended header of an entry")
                return None
            meta.head.append(block)
            if len(meta.head) > 2 * MOST_HEADERS:
                raise LayerRefused("an entry has more extended headers than any program writes")
            flag, size = block[156:157], _parse_size(block)
            _check_sum(block)
            if flag in (b"x", b"g", b"L", b"K"):
                meta.add(flag, self._record(size, meta))
                continue
            return self._entry(flag, size, block, meta)

    def _record(self, size: int, meta: _Meta) -> bytes:
        if size > LONGEST_RECORD:
            raise LayerRefused(f"an extended header has {size} bytes")
        data = self._source.take(_whole(size))
        meta.head.append(data)
        return data[:size]

    def _entry(self, flag: bytes, size: int, block: bytes, meta: _Meta) -> Entry:
        kind = _BARE.get(flag) or _KINDS.get(flag)
        if kind is None:
            raise LayerRefused(f"an entry is of the unknown type {shorten(flag)}")
        if flag == b"S":
            self._sparse_blocks(block, meta)
        name = meta.name or _name_of(block)
        if flag in _BARE:
            size = 0
        elif meta.size is not None:
            size = meta.size
        path = normal_path(name)
        if kind == "file" and name.endswith("/"):
            kind = "directory"  # as programs before POSIX wrote them
        link = meta.link or _text(block[157:257])
        return Entry(
            path=path,
            kind=kind,
            target=normal_path(link) if kind == "link" else "",
            head=b"".join(meta.head),
            size=size,
            stored=_whole(size),
        )

    def _sparse_blocks(self, block: bytes, meta: _Meta) -> None:
        """Read the map of GNU's old sparse format, which goes on behind its header."""
        more = block[482]
        while more:
            extension = self._source.take(BLOCK)
            meta.head.append(extension)
            if len(meta.head) * BLOCK > LONGEST_RECORD:
                raise LayerRefused("the map of a sparse file does not end")
            more = extension[504]


def normal_path(name: str) -> str:
    """Return a path as engines resolve it below the root; refuse one that leads out of it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise LayerRefused(f"an entry is named {shorten(name)}")
    return "/".join(parts)


@dataclass(slots=True)
class _Meta:
    """What the headers in front of an entry say of it."""

    head: list[bytes] = field(default_factory=list)
    name: str = ""
    link: str = ""
    size: int | None = None
    stated: bool = False  # by PAX records, which win over GNU's

    def add(self, flag: bytes, data: bytes) -> None:
        """Read an extended header; raise for one that says the same of every entry."""
        if flag in (b"L", b"K"):
            text = _text(data)
            if flag == b"L" and not self.stated:
                self.name = text
            elif flag == b"K" and not self.stated:
                self.link = text
            return
        records = _records(data)
        if flag == b"g":
            if wrong := next((name for name in records if name in _OF_ALL), ""):
                raise LayerRefused(f"a global header says the {wrong} of every entry")
            return
        self.stated = True
        self.name = records.get("GNU.sparse.name") or records.get("path") or self.name
        self.link = records.get("linkpath") or self.link
        if "size" in records:
            self.size = _decimal(records["size"])


class _Source:
    """Bytes of chunks, taken as many as are needed."""

    def __init__(self, chunks: Iterable[bytes | memoryview]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def take(self, count: int, *, may_end: bool = False) -> bytes:
        """Return exactly `count` bytes; b"" at the end where that is allowed."""
        got = bytearray()
        while len(got) < count:
            if not self._fill():
                if may_end and not got:
                    return b""
                raise LayerRefused("it is cut off")
            piece = self._rest[: count - len(got)]
            self._rest = self._rest[len(piece) :]
            got += piece
        return bytes(got)

    def piece(self, most: int) -> memoryview:
        """Return at least one byte and at most `most`."""
        if not self._fill():
            raise LayerRefused("it is cut off")
        piece = self._rest[:most]
        self._rest = self._rest[len(piece) :]
        return piece

    def drain(self) -> None:
        """Read what follows the end of the archive, which no engine looks at."""
        self._rest = memoryview(b"")
        for _ in self._chunks:
            pass

    def _fill(self) -> bool:
        while not self._rest:
            found = next(self._chunks, None)
            if found is None:
                return False
            self._rest = memoryview(found)
        return True


def _whole(size: int) -> int:
    return size + -size % BLOCK


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _name_of(block: bytes) -> str:
    name = _text(block[:100])
    if block[257:263] == b"ustar\0" and (prefix := _text(block[345:500])):
        return f"{prefix}/{name}"
    return name


def _parse_size(block: bytes) -> int:
    stored = block[124:136]
    if stored[0] & 0x80:
        size = int.from_bytes(stored[1:], "big")
        if stored[0] != 0x80 or size >= 1 << 63:
            raise LayerRefused("an entry has a size below zero, or beyond every disk")
        return size
    digits = stored.strip(b"\0 ")
    try:
        return int(digits, 8) if digits else 0
    except ValueError:
        raise LayerRefused(f"an entry has the size {shorten(stored)}") from None


def _check_sum(block: bytes) -> None:
    stored = block[148:156].strip(b"\0 ")
    counted = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    signed = counted - 256 * sum(byte > 127 for byte in (*block[:148], *block[156:]))
    try:
        found = int(stored, 8)
    except ValueError:
        found = -1
    if found not in (counted, signed):
        raise LayerRefused("a header has a wrong checksum")


def _records(data: bytes) -> dict[str, str]:
    """Parse PAX records: `LENGTH NAME=VALUE\\n`, the length counting itself."""
    found: dict[str, str] = {}
    while data:
        digits, blank, _ = data.partition(b" ")
        if not blank or not digits.isdigit() or len(digits) > 7:
            raise LayerRefused("an extended header has a record without a length")
        length = int(digits)
        record = data[len(digits) + 1 : length]
        name, equals, value = record.partition(b"=")
        if length > len(data) or not equals or not value.endswith(b"\n"):
            raise LayerRefused("an extended header has a broken record")
        text = name.decode("utf-8", "surrogateescape")
        found[text] = value[:-1].decode("utf-8", "surrogateescape")
        data = data[length:]
    return found


def _decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise LayerRefused(f"an entry has the size {shorten(text)}")
    return int(text)
