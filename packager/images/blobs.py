"""Reading blobs: segments to bytes, in order, each file read once from start to end."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packager.core.errors import CachedFileChanged, NotCached, PackagerError
from packager.core.files.opening import FileUnreadable, SourceChanged, open_range
from packager.core.image import Blob, Computed, FileRange, Inline, Place, RemoteRange
from packager.core.ports import RemoteReader
from packager.core.units import decimal

__all__ = ["CHUNK", "BlobReader", "FileUnreadable", "SourceChanged"]

CHUNK = 1024 * 1024

_Stamp = tuple[int, int, int]  # size, mtime, ctime
_EMPTY = hashlib.sha256().hexdigest()


class BlobReader:
    """Opens segments. Counts the bytes it takes from files and remotes."""

    def __init__(self, readers: Iterable[RemoteReader] = ()) -> None:
        self._readers = {reader.scheme: reader for reader in readers}
        self._lock = threading.Lock()
        self._stamps: dict[tuple[str, str], _Stamp] = {}  # of files that are read in parts
        self._compared: set[tuple[str, str]] = set()  # of those, files that have their digest
        self._comparing: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._memo: dict[object, float] = {}
        self.bytes_read = 0

    def read(self, blob: Blob) -> bytes:
        """Return all bytes of a blob that is known to be small."""
        # Every chunk is copied before the next is read: they share one buffer.
        return b"".join(bytes(chunk) for chunk in self.chunks(blob))

    def chunks(self, blob: Blob) -> Iterator[memoryview]:
        """Yield the blob's bytes in pieces of at most 1 MiB; a piece is valid until the next.

        Raises `SourceChanged` before the last piece is handed out when a file
        was written to meanwhile, so that a digest of mixed content never exists.
        Raises `CachedFileChanged`, as early, where a file has another digest than
        its segment says.
        """
        buffer = memoryview(bytearray(CHUNK))
        for segment in blob.segments:
            match segment:
                case Inline(data):
                    yield memoryview(data)
                case FileRange():
                    yield from self._file(segment, buffer)
                case RemoteRange():
                    yield from self._remote(segment)
                case Computed():
                    yield from self._computed(segment)

    def _file(self, segment: FileRange, buffer: memoryview) -> Iterator[memoryview]:
        with open_range(segment) as file:
            status = os.fstat(file.fileno())
            before = _stamp(status, segment)
            self._check_unchanged(segment, before)
            whole = (segment.offset, segment.length) == (0, status.st_size)
            hashed = hashlib.sha256() if segment.sha256 and whole else None
            if segment.sha256 and not (whole and segment.length):
                self._compare(segment, before)
            if segment.offset:
                file.seek(segment.offset)
            left = segment.length
            while left:
                try:
                    count = file.readinto(buffer[: min(CHUNK, left)])
                except OSError as error:
                    raise _unreadable(segment, error) from error
                if not count:
                    raise _changed(segment)
                left -= count
                if hashed is not None:
                    hashed.update(buffer[:count])
                    if left == 0 and hashed.hexdigest() != segment.sha256:
                        raise CachedFileChanged(segment.path)
                if left == 0 and _stamp(os.fstat(file.fileno()), segment) != before:
                    raise _changed(segment)
                self._count(count)
                yield buffer[:count]

    def _check_unchanged(self, segment: FileRange, now: _Stamp) -> None:
        """The parts of one file must all be of one state of it, in whichever layers they are."""
        if (segment.offset, segment.length) == (0, now[0]):
            return
        with self._lock:
            if self._stamps.setdefault((segment.path, segment.sha256), now) != now:
                raise _changed(segment)

    def _compare(self, segment: FileRange, now: _Stamp) -> None:
        """Hash the whole file that a segment is a part of, once while it stays as it is.

        No part has a digest of its own, and a part may be all of the file that is ever read.
        """
        name = (segment.path, segment.sha256)
        with self._lock:
            lock = self._comparing[segment.path]
        with lock:  # parts of one file go into several layers at once
            if name in self._compared:  # its state is that of the first part
                return
            whole = FileRange(path=segment.path, offset=0, length=now[0], sha256=segment.sha256)
            if not now[0] and segment.sha256 != _EMPTY:
                raise CachedFileChanged(segment.path)
            for _ in self._file(whole, memoryview(bytearray(CHUNK))) if now[0] else ():
                pass
            self._compared.add(name)

    def _remote(self, segment: RemoteRange) -> Iterator[memoryview]:
        scheme = segment.url.partition("://")[0]
        if scheme not in self._readers:
            raise PackagerError(f"nothing here reads {scheme!r} segments")
        for chunk in self._readers[scheme].read(segment):
            self._count(len(chunk))
            yield memoryview(chunk)

    def _computed(self, segment: Computed) -> Iterator[memoryview]:
        """Yield what is computed, without what lies before the segment's offset."""
        skip, left = segment.offset, segment.length
        for piece in segment.maker.make(_Sources(self, segment.sources, self._memo)):
            view = memoryview(piece).cast("B")
            taken = view[skip : skip + left]
            skip = max(0, skip - len(view))
            for start in range(0, len(taken), CHUNK):
                yield taken[start : start + CHUNK]
            left -= len(taken)
            if not left:
                return
        raise PackagerError(f"{left} bytes are missing of what was computed")

    def _count(self, count: int) -> None:
        with self._lock:
            self.bytes_read += count


@dataclass(frozen=True, slots=True)
class _Sources:
    """Sources of one segment, for its maker."""

    reader: BlobReader
    places: tuple[Place, ...]
    memo: dict[object, float]

    def read(self, number: int) -> Iterator[memoryview]:
        return self.reader.chunks(Blob((self.places[number],)))


def _unreadable(segment: FileRange, error: OSError) -> PackagerError:
    """Choose the failure: what the cache cannot give can be made anew."""
    failure = FileUnreadable(segment.path, error)
    if segment.sha256:
        return CachedFileChanged(segment.path, f"cannot be read: {failure.reason}")
    return failure


def _changed(segment: FileRange) -> PackagerError:
    """Choose the failure of a file that is not what it was when it was described."""
    return CachedFileChanged(segment.path) if segment.sha256 else SourceChanged(segment.path)


def _stamp(status: os.stat_result, segment: FileRange) -> _Stamp:
    """Return what a write to the file changes. Not ctime for proven content.

    Other builds hard-link to it.
    """
    ctime_ns = 0 if segment.sha256 else status.st_ctime_ns
    return status.st_size, status.st_mtime_ns, ctime_ns


def not_kept(size: int) -> NotCached:
    """Return the refusal of a layer that `--require-cached` would compute anew; size in bytes."""
    return NotCached(
        f"a layer of {decimal(size)} would be quantized anew: no output has it, and no "
        "repository that the cache names",
        hint="write to where it was written before, or build without --require-cached",
    )
