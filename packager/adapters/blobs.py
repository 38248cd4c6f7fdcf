"""Reading blobs: segments to bytes, in order, each file read once from start to end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from packager.core.image import Blob, FileRange, Inline, RemoteRange
from packager.errors import ModelRefused, NotFound, PackagerError
from packager.ports import RemoteReader

CHUNK = 1024 * 1024

_Stamp = tuple[int, int, int]  # size, mtime, ctime


class SourceChanged(ModelRefused):
    """A file was modified while it was being packaged."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path!r} changed while it was read",
            hint="wait until nothing writes to the model directory, then build again",
        )


class FileUnreadable(ModelRefused):
    """The disk or the permissions do not let a file be read to its end."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(
            f"cannot read {path!r}: {(error.strerror or str(error)).lower()}",
            hint="check the file's permissions and the disk it is on, then build again",
        )


class BlobReader:
    """Opens segments. Counts the bytes it takes from files and remotes."""

    def __init__(self, readers: Iterable[RemoteReader] = ()) -> None:
        self._readers = {reader.scheme: reader for reader in readers}
        self._lock = threading.Lock()
        self._stamps: dict[str, _Stamp] = {}  # of files that are read in parts
        self.bytes_read = 0

    def read(self, blob: Blob) -> bytes:
        """Return all bytes of a blob that is known to be small."""
        # Every chunk is copied before the next is read: they share one buffer.
        return b"".join(bytes(chunk) for chunk in self.chunks(blob))

    def chunks(self, blob: Blob) -> Iterator[memoryview]:
        """Yield the blob's bytes in pieces of at most 1 MiB; a piece is valid until the next.

        Raises `SourceChanged` before the last piece is handed out when a file
        was written to meanwhile, so that a digest of mixed content never exists.
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

    def _file(self, segment: FileRange, buffer: memoryview) -> Iterator[memoryview]:
        try:
            file = Path(segment.path).open("rb", buffering=0)  # noqa: SIM115 - closed below
        except FileNotFoundError as error:
            raise NotFound(f"{segment.path!r} is gone", hint="build again") from error
        except OSError as error:
            raise FileUnreadable(segment.path, error) from error
        with file:
            status = os.fstat(file.fileno())
            if segment.checked not in ((), state_of(status)):
                raise SourceChanged(segment.path)
            before = _stamp(status, segment)
            self._check_unchanged(segment, before)
            if segment.offset:
                file.seek(segment.offset)
            left = segment.length
            while left:
                try:
                    count = file.readinto(buffer[: min(CHUNK, left)])
                except OSError as error:
                    raise FileUnreadable(segment.path, error) from error
                if not count:
                    raise SourceChanged(segment.path)
                left -= count
                if left == 0 and _stamp(os.fstat(file.fileno()), segment) != before:
                    raise SourceChanged(segment.path)
                self._count(count)
                yield buffer[:count]

    def _check_unchanged(self, segment: FileRange, now: _Stamp) -> None:
        """The parts of one file must all be of one state of it, in whichever layers they are."""
        if (segment.offset, segment.length) == (0, now[0]):
            return
        with self._lock:
            if self._stamps.setdefault(segment.path, now) != now:
                raise SourceChanged(segment.path)

    def _remote(self, segment: RemoteRange) -> Iterator[memoryview]:
        scheme = segment.url.partition("://")[0]
        if scheme not in self._readers:
            raise PackagerError(f"nothing here reads {scheme!r} segments")
        for chunk in self._readers[scheme].read(segment):
            self._count(len(chunk))
            yield memoryview(chunk)

    def _count(self, count: int) -> None:
        with self._lock:
            self.bytes_read += count


def state_of(status: os.stat_result) -> tuple[int, ...]:
    """What tells a file from one that took its place, or was written to.

    Without ctime: a link to the file, or another mode, leaves its content alone.
    Without the inode: some network file systems number a file anew at each visit.
    """
    return status.st_size, status.st_mtime_ns


def _stamp(status: os.stat_result, segment: FileRange) -> _Stamp:
    """Take what a write changes. Other builds link to files of proven content meanwhile."""
    ctime_ns = 0 if segment.sha256 else status.st_ctime_ns
    return status.st_size, status.st_mtime_ns, ctime_ns
