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

from packager.core.image import BaseImage, Blob, FileRange, Layer
from packager.core.units import MIB, decimal
from packager.errors import OutputFailed
from packager.files.atomic import explain_disk_errors
from packager.images.slim.compressed import packer_of, packing_of
from packager.images.slim.entries import END
from packager.images.slim.scan import Chunks, LayerScan, SlimScan, entries_of, may_go

_AT_ONCE = 4
_MARGIN = 64 * MIB


class _Cancelled(Exception):
    """Another layer failed, or somebody interrupts."""


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
            stop.set()  # where one failed, or somebody interrupts; else all have ended
        failures = [error for future in futures if (error := future.exception())]
        if failures:
            raise next((one for one in failures if not isinstance(one, _Cancelled)), failures[0])
        return tuple(future.result() for future in futures)


def slim_tar(layer: Layer, dropped: frozenset[str], chunks: Chunks) -> Iterator[bytes | memoryview]:
    """Yield the layer's tar without these paths; every kept byte is the original's."""
    stream = entries_of(layer, chunks)
    for entry in stream:
        if entry.path in dropped and may_go(entry):
            continue
        yield entry.head
        yield from stream.data()
    yield END


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
        min(layer.blob.size, scan.slim) if packing_of(layer.media_type) != "none" else scan.slim
        for layer, scan in zip(layers, scans, strict=True)
        if scan.is_rewritten and scan.entries
    )
    free = shutil.disk_usage(place).free
    if needed + _MARGIN > free:
        raise OutputFailed(
            f"rewritten layers need {decimal(needed)} at {str(place)!r}, {decimal(free)} are free",
            hint="free some space, or name another disk with XDG_CACHE_HOME",
        )
