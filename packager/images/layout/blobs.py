"""Blobs on their way into a layout: copied, or shared where the file system can.

A blob appears under its digest when it is whole.  Bytes that were shared are
those of the moment at which the writer was opened, so `commit` refuses a blob
whose source files were written to since.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from packager.core.errors import ModelRefused, NotFound, OutputFailed
from packager.core.files.atomic import explain_disk_errors, sync_directory
from packager.core.files.opening import SourceChanged, open_range
from packager.core.image import Blob, FileRange, Inline
from packager.core.ports import BlobWriter
from packager.images.sharing import BLOCK, may_link, share_extents

WRITE_AGAIN = "write to a new directory, or remove this one"
_LITTLE = 1024 * 1024  # what may be read on the side of a blob whose bytes are shared

Committed = Callable[[Path], None]


class BlobFile(BlobWriter):
    """A new file. Whatever can be shared is in it from the start, and is skipped by `write`."""

    def __init__(self, directory: Path, blob: Blob | None, on_commit: Committed) -> None:
        self._directory = directory
        self._blob = blob or Blob(())
        self._size = blob.size if blob else None  # None: known only after writing
        self._on_commit = on_commit
        self._position = 0
        self._shared: deque[tuple[int, int]] = deque()  # from, to; ascending
        self._stamps: dict[str, _Stamp | None] = {}  # of the files that we share with
        with explain_disk_errors(directory):
            self._file, name = tempfile.mkstemp(prefix=".new-", dir=directory)
        self._temporary = Path(name)
        try:
            self._share()
        except BaseException:
            self.abort()
            raise

    @property
    def complete(self) -> bool:
        """Return whether `commit` needs no `write`.

        All but a few bytes share extents with local files.
        """
        unread = sum(stop - start for start, stop in self._shared)
        files = sum(part.length for part in self._blob.segments if not isinstance(part, Inline))
        local = all(isinstance(part, Inline | FileRange) for part in self._blob.segments)
        return local and bool(unread) and files - unread <= _LITTLE

    def write(self, chunk: memoryview) -> None:
        """Write the next bytes; raises `OutputFailed` when the disk is full."""
        with explain_disk_errors(self._directory):
            while chunk:
                start, stop = self._shared[0] if self._shared else (_NEVER, _NEVER)
                if self._position >= stop:
                    self._shared.popleft()
                    continue
                if self._position >= start:
                    count = min(len(chunk), stop - self._position)
                else:
                    count = os.pwrite(self._file, chunk[: start - self._position], self._position)
                self._position += count
                chunk = chunk[count:]

    def commit(self, digest: str) -> None:
        """Flush to disk, then rename to the digest's name."""
        if not self._position:
            self._fill()
        for path, stamp in self._stamps.items():
            if _stamp_of(path) != stamp:
                raise SourceChanged(path)
        place = self._directory / digest.removeprefix("sha256:")
        with explain_disk_errors(self._directory):
            if self._size not in (None, os.fstat(self._file).st_size):
                raise OutputFailed(
                    f"blob {digest} in {str(self._directory)!r} has a wrong size", hint=WRITE_AGAIN
                )
            os.fchmod(self._file, 0o644)
            os.fsync(self._file)
            _put(self._temporary, place, self._on_commit)
        self._close()

    def abort(self) -> None:
        """Delete the temporary file."""
        self._close()
        with suppress(OSError):
            self._temporary.unlink()

    def _close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            with suppress(OSError):
                os.close(file)

    def _share(self) -> None:
        position = 0
        for segment in self._blob.segments:
            if isinstance(segment, FileRange) and segment.length >= BLOCK:
                self._share_range(segment, position)
            position += segment.length

    def _share_range(self, segment: FileRange, position: int) -> None:
        try:
            file = open_range(segment)
        except (ModelRefused, NotFound):
            return  # the file's reader reports the error
        with file:
            source = file.fileno()
            stamp = _stamp_of(source)
            with explain_disk_errors(self._directory):
                count = share_extents(
                    source,
                    self._file,
                    source_offset=segment.offset,
                    length=segment.length,
                    target_offset=position,
                )
        if count:
            self._shared.append((position, position + count))
            if self._stamps.setdefault(segment.path, stamp) != stamp:
                raise SourceChanged(segment.path)

    def _fill(self) -> None:
        """Write what is not shared: headers, and the ends of files."""
        for segment in self._blob.segments:
            if isinstance(segment, Inline):
                self.write(memoryview(segment.data))
                continue
            assert isinstance(segment, FileRange), "only local blobs are complete"
            end = self._position + segment.length
            with open_range(segment) as file:
                while self._position < end:
                    start, stop = self._shared[0] if self._shared else (_NEVER, _NEVER)
                    if start <= self._position < stop:
                        self._position = stop
                        self._shared.popleft()
                        continue
                    offset = segment.offset + segment.length - (end - self._position)
                    wanted = min(end, start) - self._position
                    found = os.pread(file.fileno(), wanted, offset)
                    if not found:
                        raise SourceChanged(segment.path)
                    self.write(memoryview(found))


class LinkedBlob(BlobWriter):
    """A second name for a blob that lies in another layout; a copy where that is refused."""

    complete = True

    def __init__(
        self, directory: Path, source: Callable[[str], Path], on_commit: Committed
    ) -> None:
        self._directory = directory
        self._source = source
        self._on_commit = on_commit

    def write(self, chunk: memoryview) -> None:
        """Do nothing: the blob is linked, not written."""

    def commit(self, digest: str) -> None:
        """Link, or copy, beside the place; then rename."""
        source = self._source(digest)
        place = self._directory / digest.removeprefix("sha256:")
        # An image may hold a layer twice: each writer needs a name of its own.
        temporary = place.with_name(f".new-{secrets.token_hex(8)}")
        with explain_disk_errors(self._directory):
            try:
                if not (may_link(source) and _linked(source, temporary)):
                    shutil.copyfile(source, temporary)
                    temporary.chmod(0o644)
                    with temporary.open("rb") as file:
                        os.fsync(file.fileno())
                _put(temporary, place, self._on_commit)
            finally:
                temporary.unlink(missing_ok=True)

    def abort(self) -> None:
        """Do nothing: `commit` is atomic."""


_Stamp = tuple[int, int, int, int, int]
_NEVER = 1 << 62


def _stamp_of(file: int | str) -> _Stamp | None:
    try:
        status = os.fstat(file) if isinstance(file, int) else Path(file).stat()
    except OSError:
        return None
    identity = (status.st_dev, status.st_ino)
    return (*identity, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _linked(source: Path, target: Path) -> bool:
    try:
        target.hardlink_to(source)
    except OSError:
        return False  # another file system, too many links, or not allowed here
    return True


def _put(temporary: Path, place: Path, on_commit: Committed) -> None:
    existed = place.exists()
    temporary.replace(place)
    sync_directory(place.parent)
    if not existed:
        on_commit(place)
