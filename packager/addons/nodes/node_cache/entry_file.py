"""Writing an entry: under a temporary name with a lock, complete and on the disk before it has
its own.

The holder of the temporary file's lock writes it; others wait, and find the entry.  A killed writer
leaves only the temporary file, without a lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from packager.addons.nodes.node_cache.places import leftover_pattern, sidecar_path, temporary_path
from packager.core.errors import OutputFailed
from packager.core.files.atomic import explain_disk_errors, sync_directory, write_atomically
from packager.core.files.opening import open_range
from packager.core.image import FileRange
from packager.core.units import MIB
from packager.images.erofs.metadata import HEAD, ErofsBlob
from packager.images.erofs.verity import VerityTree, write_verity
from packager.images.sharing import share_extents

_WAIT_S = 0.2
_MODE = 0o644  # readable by a rootless containerd, and by tools that sync the directory
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class Interrupted(Exception):
    """The work was aborted, because other work failed or the user stopped it."""


class EntryFile:
    """An entry that is being written. Use as a context; without `commit` nothing remains."""

    def __init__(self, file: int, entry: Path) -> None:
        self._file = file
        self._entry = entry
        self._position = HEAD
        self.shared = 0  # bytes that the disk holds for another file, too

    @property
    def tar_size(self) -> int:
        """Return how many bytes of the tar were written."""
        return self._position - HEAD

    def write(self, chunk: bytes | memoryview) -> None:
        """Append bytes of the tar, or of a file system that is taken as it is."""
        self._put(self._position, chunk)
        self._position += len(chunk)

    def share(self, content: FileRange) -> bool:
        """Fill in the tar of a local file without copying it, where the file system can do that.

        `read_tar` then yields what is there: bytes of this moment, whatever happens to the file.
        """
        with open_range(content) as source, explain_disk_errors(self._entry.parent):
            self.shared = share_extents(
                source.fileno(),
                self._file,
                source_offset=content.offset,
                length=content.length,
                target_offset=HEAD,
            )
            if self.shared:
                end, left = content.offset + self.shared, content.length - self.shared
                self._put(HEAD + self.shared, read_all(source.fileno(), end, left))
        return self.shared > 0

    def read_tar(self, size: int) -> Iterator[memoryview]:
        """Yield a shared tar of this size, and go to its end."""
        while self._position < HEAD + size:
            step = min(MIB, HEAD + size - self._position)
            with explain_disk_errors(self._entry.parent):
                piece = read_all(self._file, self._position, step)
            self._position += step
            yield memoryview(piece)

    def write_whole(self, blob: ErofsBlob) -> None:
        """Surround the tar with what makes it a file system."""
        self.write(blob.tail)
        self._put(0, blob.head)

    def begin_at(self, position: int) -> None:
        """Set where the next bytes go."""
        self._position = position

    def add_verity(self, block: int) -> VerityTree:
        """Hash what was written, and append the tree."""
        with explain_disk_errors(self._entry.parent):
            return write_verity(
                self._position,
                block,
                lambda offset, length: read_all(self._file, offset, length),
                self._put,
            )

    def commit(self, tree: VerityTree | None) -> int:
        """Rename the entry to its final name; return its size.

        At every moment the names stand for a valid entry: with a tree that its sidecar proves,
        or without a sidecar.
        """
        sidecar = sidecar_path(self._entry)
        with explain_disk_errors(self._entry.parent):
            os.fchmod(self._file, _MODE)
            os.fsync(self._file)
            size = os.fstat(self._file).st_size
            is_new = not self._entry.exists()
            if tree is not None and is_new:
                write_atomically(sidecar, tree.sidecar(), mode=_MODE)  # looked for after the entry
            else:
                sidecar.unlink(missing_ok=True)
            temporary_path(self._entry).replace(self._entry)
            if tree is not None and not is_new:
                write_atomically(sidecar, tree.sidecar(), mode=_MODE)
            sync_directory(self._entry.parent)
        self.close()
        return size

    def close(self) -> None:
        """Remove the temporary file, where it is still there, and let others write the entry."""
        file, self._file = self._file, -1
        if file >= 0:
            _unlink_if_same(file, temporary_path(self._entry))
            with suppress(OSError):
                os.close(file)

    def __enter__(self) -> EntryFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, offset: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        with explain_disk_errors(self._entry.parent):
            while len(view):
                count = os.pwrite(self._file, view, offset)
                offset += count
                view = view[count:]


def open_entry(
    entry: Path, is_there: Callable[[], bool], stop: threading.Event
) -> EntryFile | None:
    """Begin to write an entry; None where another process has written it meanwhile.

    Waits while another process writes it; raises `Interrupted` when `stop` is set.
    """
    temporary = temporary_path(entry)
    with explain_disk_errors(entry.parent):
        entry.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
            try:
                if _lock(file, entry.parent) and _is_same(file, temporary):
                    if is_there():
                        _unlink_if_same(file, temporary)
                        os.close(file)
                        return None
                    os.ftruncate(file, 0)
                    return EntryFile(file, entry)
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # another process's, or renamed by now
            if stop.wait(_WAIT_S):
                raise Interrupted


def remove_leftovers(directory: Path) -> int:
    """Remove what killed writers left; return how many files that were."""
    removed = 0
    for temporary in directory.glob(leftover_pattern()):
        with suppress(OSError):
            file = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                removed += _unlink_if_same(file, temporary)
            finally:
                os.close(file)
    return removed


def _lock(file: int, directory: Path) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise OutputFailed(
                f"the file system of {str(directory)!r} has no locks",
                hint="fill the directory on a local disk, then copy it",
            ) from error
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            return False
        raise
    return True


def _is_same(file: int, path: Path) -> bool:
    try:
        found, named = os.fstat(file), path.lstat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (named.st_dev, named.st_ino)


def _unlink_if_same(file: int, path: Path) -> bool:
    with suppress(OSError):
        if _is_same(file, path):
            path.unlink()
            return True
    return False


def read_all(file: int, offset: int, length: int) -> bytes:
    """Read so many bytes of a file; raise where it has fewer."""
    parts = []
    while length:
        part = os.pread(file, length, offset)
        if not part:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return b"".join(parts)
