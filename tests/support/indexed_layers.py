"""Layers that carry an index of their files, written as the formats' documents describe them."""

from __future__ import annotations

import base64
import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import zstandard

from packager.core.image import MEDIA_LAYER, Blob, Inline, Layer
from packager.images.oci import sha256
from tests.support import tars

_TYPES = {
    tarfile.REGTYPE: "reg", tarfile.DIRTYPE: "dir", tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "hardlink", tarfile.FIFOTYPE: "fifo",
}  # fmt: skip


def estargz(tar: bytes, *, digest: str = "", listed: bytes = b"") -> Layer:
    """Return an eStargz layer: gzip members, the table as the tar's last file, a footer.

    `listed` is the tar that the table tells of, where that is another.
    """
    pieces = _pieces(tar[: -_padding(tar)], lambda piece: gzip.compress(piece, mtime=0))
    front = b"".join(data for _, data in pieces)
    table = _table(listed or tar, pieces, ends=False)
    last = tars.tar_of(tars.file("stargz.index.json", table))
    footer = b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff" + struct.pack("<H2sH", 26, b"SG", 22)
    footer += b"%016xSTARGZ" % len(front) + b"\x01\0\0\xff\xff" + bytes(8)
    data = front + gzip.compress(last, mtime=0) + footer
    return _layer(data, gzip.decompress(data), "+gzip", {
        "containerd.io/snapshot/stargz/toc.digest": digest or sha256(table)
    })  # fmt: skip


def zstd_chunked(tar: bytes, *, digest: str = "", listed: bytes = b"") -> Layer:
    """Return a zstd:chunked layer: frames, and the table in a frame that readers pass over."""
    pieces = _pieces(tar, zstandard.compress)
    front = b"".join(data for _, data in pieces)
    table = _table(listed or tar, pieces, ends=True)
    packed = zstandard.compress(table)
    data = front + struct.pack("<II", 0x184D2A50, len(packed)) + packed
    name = "io.github.containers.zstd-chunked.manifest-"
    return _layer(data, tar, "+zstd", {
        f"{name}position": f"{len(front) + 8}:{len(packed)}:{len(table)}:1",
        f"{name}checksum": digest or sha256(packed),
    })  # fmt: skip


def _pieces(tar: bytes, pack: Callable[[bytes], bytes]) -> list[tuple[str, bytes]]:
    """Return the tar in pieces that are packed alone: the content of each file, and the rest."""
    found, at = [], 0
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for member in (one for one in archive if one.isreg() and one.size):
            found.append(("", pack(tar[at : member.offset_data])))
            at = member.offset_data + member.size
            found.append((member.name, pack(tar[member.offset_data : at])))
    return [*found, ("", pack(tar[at:]))]


def _table(tar: bytes, pieces: list[tuple[str, bytes]], *, ends: bool) -> bytes:
    entries: list[dict[str, Any]] = []
    starts = accumulate((len(data) for _, data in pieces), initial=0)
    places = {name: (at, at + len(data)) for at, (name, data) in zip(starts, pieces, strict=False)}
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for member in archive:
            row: dict[str, Any] = {"name": member.name, "type": _TYPES[member.type]}
            if member.type != tarfile.LNKTYPE:
                row |= {"mode": member.mode, "uid": member.uid, "gid": member.gid}
                row |= {"modtime": "1970-01-01T00:00:00Z", "size": member.size}
            if member.name in places:
                content = tar[member.offset_data : member.offset_data + member.size]
                row |= {"offset": places[member.name][0], "digest": sha256(content)}
                row |= {"endOffset": places[member.name][1]} if ends else {}
            if member.linkname:
                row["linkName"] = member.linkname
            records = member.pax_headers.items()
            if xattrs := {key[14:]: value for key, value in records if key.startswith("SCHILY.")}:
                row["xattrs"] = {
                    key: base64.b64encode(value.encode()).decode() for key, value in xattrs.items()
                }
            entries += [row, {"name": member.name, "type": "chunk", "offset": 1}]
    return json.dumps({"version": 1, "entries": entries}).encode()


def _padding(tar: bytes) -> int:
    return len(tar) - len(tar.rstrip(b"\0")) // 512 * 512 - 512


def _layer(data: bytes, content: bytes, packing: str, annotations: dict[str, str]) -> Layer:
    return Layer(
        role="base",
        blob=Blob((Inline(data),)),
        media_type=MEDIA_LAYER + packing,
        digest=sha256(data),
        diff_id=sha256(content),
        annotations=annotations,
    )
