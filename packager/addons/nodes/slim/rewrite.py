"""Rewriting layers: from tar to tar, in the same order, without the entries that go."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from packager.addons.nodes.slim.compressed import packer_of, packing_of
from packager.addons.nodes.slim.scan import LayerScan, SlimScan, may_go, text_of
from packager.core.errors import OutputFailed, ProtocolFailed
from packager.core.files.atomic import explain_disk_errors
from packager.core.image import BaseImage, Blob, FileRange, Layer
from packager.core.units import MIB, decimal
from packager.images.rootfs.headers import BLOCK
from packager.images.rootfs.node import FileNode, NodeKind
from packager.images.rootfs.reading import Chunks
from packager.images.rootfs.tar_reader import TarReader
from packager.images.rootfs.unpacking import layer_broken, unpack

_AT_ONCE = 4
_MARGIN = 64 * MIB


class _Cancelled(Exception):
    """Another layer failed, or the build was interrupted."""


def rewrite_layers(
    base: BaseImage,
    scan: SlimScan,
    place: Path,
    chunks: Chunks,
) -> tuple[Layer | None, ...]:
    """Write the layers that lose something below `place`; return all, None for an empty one.

    Layers that lose nothing keep their digest and stay where they are.  Files are named after
    their digest in a layout's directories, so that outputs on the same disk link to them.
    """
    blobs = place / "blobs" / "sha256"
    with explain_disk_errors(place):
        blobs.mkdir(parents=True, exist_ok=True)
        (place / "oci-layout").write_bytes(b'{"imageLayoutVersion":"1.0.0"}')
        _check_space(base.layers, scan.layers, place)
    workers = min(_AT_ONCE, os.cpu_count() or 1)
    stop = threading.Event()

    def until_stopped(blob: Blob) -> Iterator[memoryview]:
        for chunk in chunks(blob):
            if stop.is_set():
                raise _Cancelled
            yield chunk

    def one(at: int) -> Layer | None:
        layer, found = base.layers[at], scan.layers[at]
        if not found.is_rewritten:
            return layer
        if not found.entries:
            return None
        with explain_disk_errors(place):
            return _rewrite(layer, scan.dropped, blobs, until_stopped)

    with ThreadPoolExecutor(workers, thread_name_prefix="slim") as pool:
        futures = [pool.submit(one, at) for at in range(len(base.layers))]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()  # after a failure or an interrupt; else all have ended
        failures = [error for future in futures if (error := future.exception())]
        if failures:
            raise next((one for one in failures if not isinstance(one, _Cancelled)), failures[0])
        return tuple(future.result() for future in futures)


def slim_tar(layer: Layer, dropped: frozenset[str], chunks: Chunks) -> Iterator[bytes | memoryview]:
    """Yield the layer's tar without these paths; every kept byte is the original's."""
    choice = _Choice(dropped)
    reader = TarReader(choice, sparse=True)
    head: list[bytes] = []  # of the next entry, with what extends it
    try:
        for piece in _verified(layer, chunks):
            rest = memoryview(piece)
            while len(rest) and not reader.is_ended:
                is_content, count = reader.skippable > 0, min(reader.needed, len(rest))
                reader.feed(rest[:count])
                if is_content and choice.keeps:
                    yield rest[:count]
                elif not is_content:
                    head.append(bytes(rest[:count]))
                    if choice.is_made:
                        yield from head if choice.keeps else ()
                        head, choice.is_made = [], False
                rest = rest[count:]
        reader.finish()
    except ValueError as error:
        raise layer_broken(layer.digest, str(error)) from error
    yield bytes(2 * BLOCK)


class _Choice:
    """Whether the entry that was read last stays."""

    def __init__(self, dropped: frozenset[str]) -> None:
        self._dropped = dropped
        self.is_made = False
        self.keeps = False

    def add(self, path: tuple[bytes, ...], node: FileNode) -> None:
        """Choose for a file of any kind, or a mark of a removed one."""
        self._choose(path, node.kind)

    def link(self, path: tuple[bytes, ...], target: tuple[bytes, ...]) -> None:
        """Choose for another name; raise where it stays and its file does not."""
        self._choose(path, "link")
        if self.keeps and text_of(target) in self._dropped:
            raise ValueError("its index names other files than its tar")

    def _choose(self, path: tuple[bytes, ...], kind: NodeKind | Literal["link"]) -> None:
        self.keeps = not (text_of(path) in self._dropped and may_go(path, kind))
        self.is_made = True


def _verified(layer: Layer, chunks: Chunks) -> Iterator[memoryview]:
    """Yield a layer's tar; raise at its end where it is not what the image says it is."""
    packed, plain = hashlib.sha256(), hashlib.sha256()

    def counted() -> Iterator[memoryview]:
        for chunk in chunks(layer.blob):
            packed.update(chunk)
            yield chunk

    packing = packing_of(layer.media_type)
    for piece in unpack(counted(), layer.media_type, layer.digest, layer.blob.size):
        if packing != "none":
            plain.update(piece)
        yield piece
    found = {layer.digest: packed}
    if packing != "none":
        found[layer.diff_id] = plain
    for stated, hashed in found.items():
        if stated and stated != f"sha256:{hashed.hexdigest()}":
            raise ProtocolFailed(
                f"a layer has digest sha256:{hashed.hexdigest()}, expected {stated}",
                hint="the base image or the source is damaged; fetch it again",
            )


def _rewrite(layer: Layer, dropped: frozenset[str], blobs: Path, chunks: Chunks) -> Layer:
    packer = packer_of(packing_of(layer.media_type))
    plain, packed = hashlib.sha256(), hashlib.sha256()
    handle, name = tempfile.mkstemp(dir=blobs, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:

            def put(data: bytes | memoryview) -> None:
                packed.update(data)
                file.write(data)

            for piece in slim_tar(layer, dropped, chunks):
                plain.update(piece)
                put(packer.compress(piece) if packer else piece)
            if packer:
                put(packer.flush())
            size = file.tell()
            os.fchmod(file.fileno(), 0o644)
        path = blobs / packed.hexdigest()
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    return replace(
        layer,
        blob=Blob((FileRange(path=str(path), offset=0, length=size),)),
        digest=f"sha256:{packed.hexdigest()}",
        diff_id=f"sha256:{plain.hexdigest()}",
        mount_from="",
        annotations={},
    )


def _check_space(layers: Sequence[Layer], scans: Sequence[LayerScan], place: Path) -> None:
    """Refuse where the disk has no room; a compressed layer does not grow by losing files."""
    needed = sum(
        layer.blob.size - (scan.gone if packing_of(layer.media_type) == "none" else 0)
        for layer, scan in zip(layers, scans, strict=True)
        if scan.is_rewritten and scan.entries
    )
    free = shutil.disk_usage(place).free
    if needed + _MARGIN > free:
        raise OutputFailed(
            f"rewritten layers need {decimal(needed)} at {str(place)!r}, {decimal(free)} are free",
            hint="free some space, or name another disk with XDG_CACHE_HOME",
        )
