"""Files that appear whole or not at all, disk errors with an explanation, the user's home."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from packager.core.errors import OutputFailed, UsageError, is_system_limit

_STREAMS = ("/dev", "/dev/fd", "/proc/self/fd")  # whose entries stand for open files
_ELSEWHERE = "choose another directory, on a disk that can be written"


@contextmanager
def explain_disk_errors(path: Path) -> Iterator[None]:
    """Convert an `OSError` about `path` into `OutputFailed` with a hint."""
    try:
        yield
    except OSError as error:
        if is_system_limit(error):
            raise
        hints = {
            errno.ENOSPC: f"free some space on the file system of {path}, or choose another output",
            errno.EDQUOT: "your disk quota is used up; free some space",
            errno.EACCES: "choose a directory that you may write to",
            errno.EPERM: "choose a directory that you may write to",
            errno.EROFS: "the file system is read-only; choose another output",
            errno.ENAMETOOLONG: "give a shorter name",
        }
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise OutputFailed(
            f"cannot write {str(path)!r}: {reason}", hint=hints.get(error.errno or 0, _ELSEWHERE)
        ) from error


def check_place(path: Path) -> None:
    """Refuse a file or directory that cannot be made, before there is anything to put into it."""
    with explain_disk_errors(path):
        parent = path.absolute().parent
        while not parent.exists():
            parent = parent.parent
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Read a regular file; at most one byte more than allowed, so that callers can refuse it.

    Never waits: a FIFO or a device in a file's place raises `OSError` at once.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        # A read of the limit itself would allocate that much first.
        return file.read(min(max_bytes, status.st_size) + 1)[: max_bytes + 1]


def write_atomically(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write `data` so that `path` holds the old content or the new, after any crash.

    Takes away what writers of the same file left when they were killed.  Without `mode` the
    process' umask decides who may read it.  A pipe or a device is written to, and stays.
    """
    if _is_stream(path):
        _write_into(path, data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    _remove_stale(path)
    try:
        with _open_locked(temporary) as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            temporary.replace(path)
        sync_directory(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _is_stream(path: Path) -> bool:
    """Return whether a path leads to a pipe, a device or a stream of a process."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or str(path.parent) in _STREAMS


def _write_into(path: Path, data: bytes) -> None:
    """Write to a pipe or a device; raise `OSError` for a pipe without a reader."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    with os.fdopen(os.open(path, flags), "wb", buffering=0) as file:
        os.set_blocking(file.fileno(), True)
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]


def _open_locked(temporary: Path) -> BinaryIO:
    """Create a file with a lock that shows that its process is alive."""
    while True:
        file = temporary.open("wb")
        with suppress(OSError):  # no leftovers are removed on file systems without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # removed as a leftover before it had its lock


def _remove_stale(path: Path) -> None:
    """Remove temporary files of `path` that no living writer holds the lock of."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError), temporary.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.unlink()


def can_write(directory: Path) -> bool:
    """Return whether permissions let files be made in a directory, which may not exist yet."""
    place = directory
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    return os.access(place, os.W_OK | os.X_OK)


def home_dir() -> Path:
    """The user's home; users without a name, as in many containers, may have none."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise UsageError(
            "it is not known where your home directory is",
            hint="set HOME to a directory that you may write to",
        ) from error


def user_dir(
    kind: Literal["cache", "config", "data", "state"], environment: Mapping[str, str]
) -> Path:
    """Return one of the user's XDG base directories; a relative setting is ignored."""
    root = environment.get(f"XDG_{kind.upper()}_HOME") or ""
    return Path(root) if root.startswith("/") else home_dir() / _BELOW_HOME[kind]


_BELOW_HOME = {
    "cache": ".cache",
    "config": ".config",
    "data": ".local/share",
    "state": ".local/state",
}


def sync_directory(path: Path) -> None:
    """Flush renames in `path` to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
