"""Deterministic tar headers, and whole layers as segments.

The bytes depend on paths, contents and modes only: entries sorted, mtime 0,
owner 0:0 without names, parent directories present (engines would otherwise
give them the time of the pull).  File data starts at a multiple of 4096, so
file systems that can share extents do; the gap is filled by one PAX `comment`
record, which every reader skips.  Sizes over 8 GiB use GNU base-256, since
some scanners ignore a PAX `size`.  A directory that the base has otherwise keeps
what it has there.

Changing any byte here changes every layer digest: bump `TAR_FORMAT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

from packager.core.errors import UsageError
from packager.core.image import Blob, FileRange, Inline, RemoteRange, Segment

TAR_FORMAT = 1
BLOCK = 512
ALIGNMENT = 4096
_OCTAL_SIZE_LIMIT = 8**11  # largest size an 11-digit octal field cannot hold: 8 GiB
_OCTAL_ID_LIMIT = 8**7
_NAME_FIELD = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TarEntry:
    """Regular file in a layer."""

    path: str  # absolute, in the image
    content: FileRange | RemoteRange | Inline | Blob
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryAttributes:
    """What a directory's entry says beside its name."""

    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    xattrs: tuple[tuple[bytes, bytes], ...] = ()  # full names, sorted


DEFAULT_DIRECTORY = DirectoryAttributes()
_NONE: Mapping[str, DirectoryAttributes] = MappingProxyType({})


def make_tar(
    entries: Iterable[TarEntry], directories: Mapping[str, DirectoryAttributes] = _NONE
) -> Blob:
    """Describe an uncompressed tar layer holding `entries` and their directories.

    `directories` are those, by absolute path, that have other attributes than usual.
    """
    files = {entry.path.lstrip("/"): entry for entry in entries}
    segments: list[Segment] = []
    pending = bytearray()  # headers and padding since the last file range
    position = 0

    def emit(data: bytes) -> None:
        nonlocal position
        pending.extend(data)
        position += len(data)

    for path in sorted({*files, *_parents(files)}):
        entry = files.get(path)
        if entry is None:
            emit(_directory(path, directories.get(f"/{path}", DEFAULT_DIRECTORY)))
            continue
        mode = 0o755 if entry.executable else 0o644
        size = entry.content.length
        emit(_pax(path, position + BLOCK if size >= ALIGNMENT else 0))
        header = _header(path, size=size, mode=mode, kind=b"0")
        emit(header)
        content = entry.content
        for segment in content.segments if isinstance(content, Blob) else (content,):
            if isinstance(segment, Inline):
                emit(segment.data)
            elif segment.length:
                segments.append(Inline(bytes(pending)))
                pending.clear()
                segments.append(segment)
                position += segment.length
        emit(bytes(-position % BLOCK))
    emit(bytes(2 * BLOCK))
    segments.append(Inline(bytes(pending)))
    return Blob(tuple(segments))


def make_link(path: str, target: str) -> Blob:
    """Describe an uncompressed tar layer of one symbolic link: 1,536 bytes.

    Both names fit a header's fields (100 bytes), and the link lies at the image's root: nothing
    but it is in the layer.
    """
    header = _header(path, size=0, mode=0o777, kind=b"2", link=target)
    return Blob((Inline(header + bytes(2 * BLOCK)),))


def _directory(path: str, has: DirectoryAttributes) -> bytes:
    """Return the headers of a directory."""
    xattrs = b"".join(_record(b"SCHILY.xattr." + name, value) for name, value in has.xattrs)
    header = _header(f"{path}/", size=0, mode=has.mode, kind=b"5", uid=has.uid, gid=has.gid)
    return _pax(f"{path}/", 0, xattrs) + header


def _parents(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        parts = PurePosixPath(path).parts
        if not parts or ".." in parts:
            raise UsageError(
                f"path {path!r} cannot be placed in an image", hint="give one without '..'"
            )
        found.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return found


def _pax(path: str, unaligned_start: int, more: bytes = b"") -> bytes:
    """Return the PAX header that a file needs, or no bytes.

    It carries a path that the name field cannot hold, `more` records, and a comment
    that moves the file's data from `unaligned_start` to the next 4 KiB boundary.
    """
    records = _path_record(path) + more
    if -unaligned_start % ALIGNMENT:
        least = BLOCK + len(records) + len("9999 comment=\n")
        gap = -unaligned_start % ALIGNMENT
        while gap < least:
            gap += ALIGNMENT
        padding = gap - BLOCK - len(records)
        prefix = f"{padding} comment=".encode()
        records += prefix.ljust(padding - 1, b" ") + b"\n"
    if not records:
        return b""
    header = _header("././@PaxHeader", size=len(records), mode=0o644, kind=b"x")
    return header + records + bytes(-len(records) % BLOCK)


def _path_record(path: str) -> bytes:
    if len(path.encode()) <= _NAME_FIELD:
        return b""
    return _record(b"path", path.encode())


def _record(key: bytes, value: bytes) -> bytes:
    body = b" " + key + b"=" + value + b"\n"
    length = len(body) + len(str(len(body)))
    length = len(body) + len(str(length))  # the length counts its own digits
    return str(length).encode() + body


def _header(
    path: str, *, size: int, mode: int, kind: bytes, link: str = "", uid: int = 0, gid: int = 0
) -> bytes:
    """Return a 512-byte GNU header (POSIX.1-1988 fields, magic `ustar  `)."""
    name = path.encode()[:_NAME_FIELD].decode(errors="ignore").encode()
    fields = b"".join(
        (
            name.ljust(_NAME_FIELD, b"\0"),
            b"%07o\0" % mode,
            _id_field(uid),
            _id_field(gid),
            _size_field(size),
            b"%011o\0" % 0,  # mtime
            b" " * 8,  # checksum, counted as blanks
            kind,
            link.encode().ljust(_NAME_FIELD, b"\0"),
            b"ustar  \0",
            bytes(32),  # user name
            bytes(32),  # group name
            bytes(BLOCK - 329),
        )
    )
    checksum = b"%06o\0 " % sum(fields)
    return fields[:148] + checksum + fields[156:]


def _id_field(number: int) -> bytes:
    if number < _OCTAL_ID_LIMIT:
        return b"%07o\0" % number
    return b"\x80" + number.to_bytes(7, "big")


def _size_field(size: int) -> bytes:
    if size < _OCTAL_SIZE_LIMIT:
        return b"%011o\0" % size
    return b"\x80" + size.to_bytes(11, "big")
