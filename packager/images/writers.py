"""The writers of one layer, one for each sink that needs its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from packager.core.errors import ProtocolFailed, Unavailable
from packager.core.image import MEDIA_EROFS, MEDIA_FILE, Layer
from packager.core.ports import BlobWriter, ImageSink


class WriteBrokenOff(Unavailable):
    """Another layer of the same archive failed, so this one cannot be written either."""


def open_writers(layer: Layer, sinks: Sequence[ImageSink]) -> dict[ImageSink, BlobWriter]:
    """Open a writer in each sink that needs the bytes; none is left open where one fails."""
    writers: dict[ImageSink, BlobWriter] = {}
    try:
        for sink in sinks:
            if layer.media_type == MEDIA_FILE and sink.tree_digests is None:
                continue  # in no image
            if layer.media_type == MEDIA_EROFS and not sink.keeps_index:
                continue  # in no manifest that it takes
            writer = sink.writer(layer)
            if writer is not None:
                writers[sink] = writer
    except BaseException:
        for writer in writers.values():
            writer.abort()
        raise
    return writers


def all_have(layer: Layer, digest: str, sinks: Sequence[ImageSink]) -> bool:
    """Return whether no sink needs the bytes of a layer of this digest."""
    with suppress(ProtocolFailed):  # a blob of another size than is claimed
        writers = open_writers(replace(layer, digest=digest), sinks)
        for writer in writers.values():
            writer.abort()
        return not writers
    return False


def feed(
    chunk: memoryview,
    alive: dict[ImageSink, BlobWriter],
    broken: dict[ImageSink, Unavailable],
) -> None:
    """Write the chunk to every writer; move those that break off from `alive` to `broken`."""
    if not chunk:
        return
    for sink, writer in list(alive.items()):
        try:
            writer.write(chunk)
        except Unavailable as error:
            alive.pop(sink).abort()
            broken[sink] = error


def commit_each(
    alive: dict[ImageSink, BlobWriter],
    digest: str,
    broken: dict[ImageSink, Unavailable],
) -> None:
    """Commit every writer; move those that break off from `alive` to `broken`."""
    for sink, writer in list(alive.items()):
        try:
            writer.commit(digest)
        except Unavailable as error:
            broken[sink] = error
            writer.abort()
        alive.pop(sink)


def commit(writers: Iterable[BlobWriter], digest: str) -> None:
    """Commit every writer under the digest; abort those that are left where one fails."""
    waiting = list(writers)
    try:
        while waiting:
            waiting[0].commit(digest)
            waiting.pop(0)
    except BaseException:
        for writer in waiting:
            writer.abort()
        raise
