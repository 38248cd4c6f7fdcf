"""Opening files of directories that others may write to: what was checked is what is read.

A model's directory may change between the check and the read, minutes later, by accident or on
purpose: a link to a file that only we may read can take the place of a harmless one.  So a file
that was checked is identified by device, inode, size, modification and change time, is opened
without following links, and is compared before its first byte is read.

File systems of the network that number a file anew at each visit are the exception: there the
inode is not compared.  A link is not followed there either.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path

from packager.core.errors import CachedFileChanged, ModelRefused, NotFound, is_system_limit
from packager.core.image import FileRange

Identity = tuple[int, ...]  # device, inode, size, modification and change time in ns

# O_NONBLOCK: a pipe that was put in the file's place must not be waited for.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_OPENAT2 = 437  # on every architecture
_AT_FDCWD = -100
_RESOLVE_NO_SYMLINKS = 0x04
_MOUNTS = Path("/proc/self/mountinfo")
_RENUMBERING = ("cifs", "smb", "fuse", "9p", "afs", "davfs")


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
        self.reason = (error.strerror or str(error)).lower()
        super().__init__(
            f"cannot read {path!r}: {self.reason}",
            hint="check the file's permissions and the disk it is on, then build again",
        )


def open_range(segment: FileRange) -> io.FileIO:
    """Open the file of a segment, as `open_checked` does.

    A file of the artifact cache that cannot be used can be made anew: `CachedFileChanged`.
    """
    try:
        return open_checked(segment.path, segment.checked, proven=bool(segment.sha256))
    except SourceChanged as error:
        if segment.sha256:
            raise CachedFileChanged(segment.path) from error
        raise
    except FileUnreadable as error:
        if segment.sha256:
            raise CachedFileChanged(segment.path, f"cannot be read: {error.reason}") from error
        raise


def read_start(content: FileRange, most: int) -> bytes:
    """Read a small file, at most so many bytes of it."""
    with open_range(content) as file, io.BufferedReader(file) as stream:
        return stream.read(most)


def check_unchanged(content: FileRange) -> None:
    """Raise `SourceChanged` when another file is there than was checked, or it was written to.

    For files that other programs read: what was never checked is left to them.
    """
    if content.checked:
        open_range(content).close()


def open_checked(path: str, checked: Identity = (), *, proven: bool = False) -> io.FileIO:
    """Open a regular file for reading; with `checked`, that one and no other.

    Content that is `proven` by digest may get and lose links, and so another change time.
    Raises `SourceChanged`, `NotFound` and `FileUnreadable`.
    """
    try:
        descriptor = _open_without_links(path) if checked else os.open(path, _FLAGS)
    except FileNotFoundError as error:
        raise NotFound(f"{path!r} is gone", hint="build again") from error
    except OSError as error:
        if is_system_limit(error):
            raise
        if checked and error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise SourceChanged(path) from error
        raise FileUnreadable(path, error) from error
    try:
        status = os.fstat(descriptor)
        if checked and not is_same_file(status, checked, proven=proven):
            raise SourceChanged(path)
        if not stat.S_ISREG(status.st_mode):
            number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
            reason = os.strerror(number) if number == errno.EISDIR else "not a regular file"
            raise FileUnreadable(path, OSError(number, reason))
        return io.FileIO(descriptor, "r")
    except BaseException:
        os.close(descriptor)
        raise


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity of a file, which changes when it is replaced or written to."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def is_same_file(status: os.stat_result, checked: Identity, *, proven: bool = False) -> bool:
    """Compare a file with one that was checked; without change time where content is proven."""
    count = 4 if proven else 5
    now, before = identity_of(status)[:count], checked[:count]
    if now == before:
        return stat.S_ISREG(status.st_mode)
    renumbered = (now[0], *now[2:]) == (before[0], *before[2:])
    return renumbered and stat.S_ISREG(status.st_mode) and _renumbers(status.st_dev)


@cache
def _renumbers(device: int) -> bool:
    """Return whether inode numbers are unstable on the file system; False where unknown."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        for line in _MOUNTS.read_text("utf-8", "replace").splitlines():
            fields = line.split()
            if fields[2] == number:
                return fields[fields.index("-") + 1].startswith(_RENUMBERING)
    except (OSError, ValueError, IndexError):
        pass
    return False


def _open_without_links(path: str) -> int:
    """Open an absolute path no part of which may be a link; raise ELOOP or ENOTDIR else."""
    openat2 = _openat2()
    if openat2 is not None:
        try:
            return openat2(path)
        except OSError as error:
            # Kernels before 5.6 lack the call, and some sandboxes forbid what they do not know.
            if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG):
                raise
    return _open_by_parts(path)


def _open_by_parts(path: str) -> int:
    *directories, name = Path(path).parts
    place = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in directories[1:]:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            place, above = os.open(part, flags, dir_fd=place), place
            os.close(above)
        return os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=place)
    finally:
        os.close(place)


@cache
def _openat2() -> Callable[[str], int] | None:
    """Return the system call that refuses links anywhere in a path; None where there is none."""
    try:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        call = library.syscall
    except (ImportError, OSError, AttributeError):
        return None
    how = (ctypes.c_uint64 * 3)(_FLAGS, 0, _RESOLVE_NO_SYMLINKS)

    def openat2(path: str) -> int:
        while True:
            place = ctypes.c_char_p(os.fsencode(path))
            descriptor = call(_OPENAT2, _AT_FDCWD, place, how, ctypes.sizeof(how))
            if descriptor >= 0:
                return int(descriptor)
            number = ctypes.get_errno()
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number), path)

    return openat2
