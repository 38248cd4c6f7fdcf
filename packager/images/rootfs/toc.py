"""Indexes that layers carry: eStargz's and zstd:chunked's tables of contents, read by ranges.

An index counts where the layer's descriptor, and so the image's manifest, names its digest.  One
that cannot be used is as good as none: the layer is read instead.

Sources: containerd/stargz-snapshotter docs/estargz.md, and containers/storage
pkg/chunked/internal/minimal/compression.go.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from packager.core.image import Layer
from packager.core.units import MIB
from packager.images.rootfs import headers
from packager.images.rootfs.headers import BLOCK
from packager.images.rootfs.listing import ListingWriter
from packager.images.rootfs.node import FileNode, NodeKind
from packager.images.rootfs.tar_reader import owner_of, path_of, target_of

ESTARGZ_DIGEST = "containerd.io/snapshot/stargz/toc.digest"
CHUNKED_POSITION = "io.github.containers.zstd-chunked.manifest-position"
CHUNKED_DIGEST = "io.github.containers.zstd-chunked.manifest-checksum"
_MAX_PACKED, _MAX_TOC = 64 * MIB, 512 * MIB
_FOOTER = 51  # bytes of eStargz's last gzip member
_KINDS: Mapping[str, NodeKind] = {
    "reg": "file", "dir": "directory", "symlink": "symlink",
    "char": "character", "block": "block", "fifo": "fifo",
}  # fmt: skip

ReadRange = Callable[[int, int], bytes]  # offset and length in the layer as it travels


def read_toc(layer: Layer, name: str, read: ReadRange) -> bytes | None:
    """Return the listing of a layer by its index; None where it has none that can be used."""
    names = layer.annotations
    with suppress(ValueError, TypeError, LookupError, AttributeError, zlib.error, ImportError):
        if ESTARGZ_DIGEST in names:
            table = _estargz(layer.blob.size, read)
            _compare(table, names[ESTARGZ_DIGEST])
            return _listing(name, table, read)
        if CHUNKED_POSITION in names and CHUNKED_DIGEST in names:
            return _listing(name, _chunked(layer, read), read)
    return None


def _estargz(size: int, read: ReadRange) -> bytes:
    """Return the table at the place that the layer's last bytes name."""
    footer = read(size - _FOOTER, _FOOTER) if size > _FOOTER else b""
    if footer[12:14] != b"SG" or footer[32:38] != b"STARGZ":
        raise ValueError("it has no footer of eStargz")
    start = int(footer[16:32], 16)
    if not 0 <= start < size - _FOOTER or size - _FOOTER - start > _MAX_PACKED:
        raise ValueError("its table lies nowhere")
    unpacking = zlib.decompressobj(wbits=31)
    tar = unpacking.decompress(read(start, size - _FOOTER - start), _MAX_TOC)
    header = headers.parse_header(tar[:BLOCK])
    if header.name != b"stargz.index.json" or len(tar) < BLOCK + header.size:
        raise ValueError("its table is not there")
    return tar[BLOCK : BLOCK + header.size]


def _chunked(layer: Layer, read: ReadRange) -> bytes:
    import zstandard

    offset, length, unpacked, _ = map(int, layer.annotations[CHUNKED_POSITION].split(":"))
    if not 0 <= offset < offset + length <= layer.blob.size or length > _MAX_PACKED:
        raise ValueError("its table lies nowhere")
    if not 0 < unpacked <= _MAX_TOC:
        raise ValueError("its table is too large")
    packed = read(offset, length)
    _compare(packed, layer.annotations[CHUNKED_DIGEST])
    try:
        table: bytes = zstandard.ZstdDecompressor().decompress(packed, max_output_size=unpacked)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    return table


def _listing(name: str, table: bytes, read: ReadRange) -> bytes:
    document = json.loads(table)
    if document["version"] != 1:
        raise ValueError("its table is of an unknown version")
    found = ListingWriter(name)
    for row in document["entries"]:
        if row["type"] != "chunk":  # a part of the file before it
            _take(found, row, read)
    return found.document()


def _take(found: ListingWriter, row: Mapping[str, Any], read: ReadRange) -> None:
    path = path_of(row["name"].encode("utf-8", "surrogateescape"))
    link = row.get("linkName", "").encode("utf-8", "surrogateescape")
    if row["type"] == "hardlink":
        found.link(path, path_of(link))
        return
    kind = _KINDS[row["type"]]
    xattrs = row.get("xattrs") or {}
    node = FileNode(
        kind=kind,
        mode=int(row.get("mode", 0)) & 0o7777,
        uid=owner_of(int(row.get("uid", 0))),
        gid=owner_of(int(row.get("gid", 0))),
        mtime=_seconds(row.get("modtime", "")),
        size=int(row.get("size", 0)) if kind == "file" else 0,
        target=target_of(link) if kind == "symlink" else b"",
        xattrs=tuple(
            sorted((name.encode(), base64.b64decode(value)) for name, value in xattrs.items())
        ),
    )
    found.add(path, node)
    if found.keeps(path, node):
        with suppress(ValueError, TypeError, LookupError, zlib.error):  # then it is not known
            found.content(path, _content(row, node.size, read))


def _content(row: Mapping[str, Any], size: int, read: ReadRange) -> bytes:
    """Return the content of a small file, which lies in one piece; its digest is in the table."""
    if not size:
        return b""
    start = int(row["offset"])
    if "endOffset" in row:  # zstd:chunked's
        import zstandard

        packed = read(start, min(int(row["endOffset"]) - start, 2 * size + BLOCK))
        try:
            data = zstandard.ZstdDecompressor().decompressobj().decompress(packed)[:size]
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
    else:
        data = zlib.decompressobj(wbits=31).decompress(read(start, 2 * size + BLOCK), size)
    _compare(data, row["digest"])
    return data


def _seconds(text: str) -> int:
    return max(0, int(datetime.fromisoformat(text).timestamp())) if text else 0


def _compare(data: bytes, digest: str) -> None:
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise ValueError("its table has another digest than the manifest says")
