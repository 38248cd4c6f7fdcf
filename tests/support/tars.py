"""Tars for tests, by `tarfile` or byte by byte: what writes them shares no code with what reads."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from typing import Any

Member = tuple[tarfile.TarInfo, bytes]


def file(name: str, data: bytes = b"", **fields: Any) -> Member:
    """A regular file; `fields` are those of a `TarInfo`."""
    info = _info(name, **fields)
    info.size = len(data)
    return info, data


def entry(name: str, kind: bytes, **fields: Any) -> Member:
    """An entry of another kind."""
    info = _info(name, **fields)
    info.type = kind
    return info, b""


def directory(name: str, **fields: Any) -> Member:
    return entry(name, tarfile.DIRTYPE, **{"mode": 0o755, **fields})


def symlink(name: str, target: str, **fields: Any) -> Member:
    return entry(name, tarfile.SYMTYPE, linkname=target, **fields)


def hard_link(name: str, target: str) -> Member:
    return entry(name, tarfile.LNKTYPE, linkname=target)


def tar_of(*members: Member, format: int = tarfile.GNU_FORMAT) -> bytes:
    """The archive of these members, in order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def pax_records(records: Iterable[tuple[str, bytes]]) -> bytes:
    """A PAX header with these records, and its own header."""
    body = b""
    for key, value in records:
        rest = b" " + key.encode() + b"=" + value + b"\n"
        length = len(rest) + 1
        while len(str(length)) + len(rest) != length:
            length += 1
        body += str(length).encode() + rest
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, len(body)
    return info.tobuf(tarfile.USTAR_FORMAT) + body.ljust(-(-len(body) // 512) * 512, b"\0")


def header(kind: bytes = b"0", **fields: bytes) -> bytes:
    """A header whose fields are given as the bytes that they have; its checksum is right."""
    places = {
        "name": (0, 100), "mode": (100, 8), "uid": (108, 8), "gid": (116, 8), "size": (124, 12),
        "mtime": (136, 12), "link": (157, 100), "magic": (257, 8), "major": (329, 8),
        "minor": (337, 8), "prefix": (345, 155),
    }  # fmt: skip
    block = bytearray(512)
    for name, value in {"name": b"a", "mode": b"644", "magic": b"ustar\x0000", **fields}.items():
        at, length = places[name]
        assert len(value) <= length
        block[at : at + len(value)] = value
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _info(name: str, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info
