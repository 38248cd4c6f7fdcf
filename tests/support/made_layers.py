"""Layers and bases that tests make up, with Python's own tar writer."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from packager.core.image import MEDIA_LAYER, BaseImage, Blob, Inline, Layer, Platform
from packager.images.oci import sha256
from tests.support import layer_layouts, tars
from tests.support.layer_layouts import packed
from tests.support.tars import Member

LARGE = b"m" * 1_200_000  # more than a layer must lose


def file(name: str, data: bytes = b"", **fields: Any) -> Member:
    """Return a regular file, with attributes as a distribution gives them."""
    usual = {"mode": 0o640, "uid": 1234, "mtime": 1_700_000_000}
    return tars.file(name, data, **{**usual, **fields})


def directory(name: str) -> Member:
    """Return a directory."""
    return file(name, type=tarfile.DIRTYPE, mode=0o755)


def link(name: str, target: str) -> Member:
    """Return a hard link."""
    return file(name, type=tarfile.LNKTYPE, linkname=target)


def symlink(name: str, target: str) -> Member:
    """Return a symbolic link."""
    return file(name, type=tarfile.SYMTYPE, linkname=target)


def member(kind: str, path: str, text: str = "") -> Member:
    """Return the entry of a table; a file's text LARGE stands for the large data."""
    if kind == "file":
        return file(path, LARGE if text == "LARGE" else text.encode())
    if kind == "directory":
        return directory(path)
    return {"link": link, "symlink": symlink}[kind](path, text)


def tar_of(members: Iterable[Member], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar archive."""
    return tars.tar_of(*members, format=form)


def unpacked(data: bytes, media_type: str) -> bytes:
    """Return the archive of a layer, unpacked by other programs than ours."""
    if media_type.endswith("gzip"):
        return gzip.decompress(data)
    if media_type.endswith("zstd"):
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def layer_of(data: bytes, packing: str = "none") -> Layer:
    """Return a layer of a base."""
    travelling = packed(data, packing)
    suffix = "" if packing == "none" else f"+{packing}"
    return Layer(
        role="base",
        blob=Blob((Inline(travelling),)),
        media_type=MEDIA_LAYER + suffix,
        digest=sha256(travelling),
        diff_id=sha256(data),
    )


def base_of(layers: Sequence[Layer], **config: Any) -> BaseImage:
    """Return a base image of layers."""
    return BaseImage(
        reference="registry.test/base:1",
        digest="sha256:" + "b" * 64,
        platform=Platform(),
        layers=tuple(layers),
        config={"os": "linux", "architecture": "amd64", **config},
    )


def read(blob: Blob) -> bytes:
    """Return the bytes of a blob in memory or in one file."""
    return b"".join(
        part.data
        if isinstance(part, Inline)
        else Path(part.path).read_bytes()[part.offset : part.offset + part.length]  # type: ignore[union-attr]
        for part in blob.segments
    )


def members_of(data: bytes) -> dict[str, tarfile.TarInfo]:
    """Return the entries of an archive by name."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive}


def files_after(layers: Iterable[bytes]) -> dict[str, bytes]:
    """Return the regular files of an image as an engine would find them: hard links resolved."""
    found: dict[str, bytes] = {}
    for data in layers:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                name = member.name.lstrip("./")
                base, _, last = name.rpartition("/")
                if last.startswith(".wh."):
                    gone = f"{base}/{last.removeprefix('.wh.')}".lstrip("/")
                    found = {one: kept for one, kept in found.items() if not is_at(one, gone)}
                    continue
                if not member.isdir():
                    found = {one: kept for one, kept in found.items() if not is_at(one, name)}
                if member.isfile():
                    content = archive.extractfile(member)
                    found[name] = content.read() if content else b""
                elif member.islnk():
                    found[name] = found[member.linkname.lstrip("./")]
    return found


def is_at(path: str, place: str) -> bool:
    """Return whether a path is a place or below it."""
    return path == place or path.startswith(f"{place}/")


def write_layout(root: Path, base: BaseImage) -> None:
    """Write a base as an OCI layout."""
    layers = [
        layer_layouts.MadeLayer(
            data=read(one.blob),
            content=b"",
            media_type=one.media_type,
            role="base",
            stated_diff_id=one.diff_id,
        )
        for one in base.layers
    ]
    layer_layouts.write_layout(root, layers, base.config)
