"""Files: hashed, written durably, linked or cloned instead of copied where the disk can."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from artifact_cache.entry import Output
from artifact_cache.errors import BuildLeftNothing, Unpublishable, UnusableDirectory

CHUNK = 1024 * 1024
HASHING_THREADS = min(8, os.cpu_count() or 1)  # hashlib lets go of the interpreter
FICLONE = 0x40049409  # linux/fs.h; the number is the same on x86-64 and arm64

# Reasons why bytes cannot be shared, and have to be copied.
_CANNOT_SHARE = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTTY)
_CANNOT_CLONE = (*_CANNOT_SHARE, errno.EINVAL, errno.ENOSYS, errno.EBADF)


class NotRegular(OSError):
    """A link, directory, pipe, socket or device stands where a file belongs."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


def open_regular(path: Path, *, follow_links: bool = False) -> int:
    """Open a regular file for reading; return its descriptor.

    Raises `NotRegular`, and OSError.  Opening a pipe without O_NONBLOCK waits for a writer,
    which may never come.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        # ELOOP: a link; ENXIO: a socket, or a device that is not there
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotRegular(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(path)
    return descriptor


def sha256_of(path: Path) -> str:
    """Hash a regular file; never follow a link to one."""
    with os.fdopen(open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def bounded_bytes(path: Path, most: int, *, follow_links: bool = False) -> bytes:
    """Read at most one byte more than allowed, so that a huge file is refused, not swallowed."""
    descriptor = open_regular(path, follow_links=follow_links)
    with os.fdopen(descriptor, "rb") as file:
        # Asked for all that may be, every read would make room for it first.
        return file.read(min(most, os.fstat(descriptor).st_size) + 1)


def write_durably(path: Path, data: bytes) -> None:
    """Create a file that must not exist yet, and write it through to the disk."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o444), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Write a file's bytes, or a directory's names, through to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_or_copy(source: Path, target: Path, mode: int) -> str | None:
    """Link, clone or copy a file to `target`.

    Returns the digest when the bytes had to be copied, so that they are read only
    once, and None when they are shared and nothing was read.  A link has the
    mode of its source, so a file with another mode is cloned or copied.
    """
    if stat.S_IMODE(source.lstat().st_mode) == mode and _linked(source, target):
        return None
    with os.fdopen(open_regular(source), "rb") as reader, target.open("xb") as writer:
        os.fchmod(writer.fileno(), mode)
        if _cloned(reader.fileno(), writer.fileno()):
            return None
        digest = hashlib.sha256()
        while chunk := reader.read(CHUNK):
            digest.update(chunk)
            writer.write(chunk)
    return digest.hexdigest()


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno in _CANNOT_SHARE:
            return False
        raise
    return True


def _cloned(reader: int, writer: int) -> bool:
    try:
        fcntl.ioctl(writer, FICLONE, reader)
    except OSError as error:
        if error.errno in _CANNOT_CLONE:
            return False
        raise
    return True


def in_parallel(work: Callable[[Output], None], outputs: Iterable[Output]) -> None:
    """Run the work for each output in threads; raise the first error after all have ended."""
    with ThreadPoolExecutor(HASHING_THREADS, "artifact-cache") as pool:
        for _ in pool.map(work, outputs):
            pass


def make_empty(directory: Path) -> None:
    """Create a directory, or take one that holds nothing; raise `UnusableDirectory` otherwise."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with os.scandir(directory) as names:
            empty = not any(names)
    except OSError as error:
        raise UnusableDirectory(directory, said(error)) from error
    if not empty:
        raise UnusableDirectory(directory, "it is not empty")


def clear(directory: Path) -> None:
    """Remove everything inside a directory, and keep the directory."""
    try:
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as error:
        raise UnusableDirectory(directory, said(error)) from error


def replace_contents(directory: Path, inner: Path) -> None:
    """Replace everything in `directory` by the contents of `inner`, a directory inside it.

    On OSError everything is where it was.  Raises `UnusableDirectory` when that
    did not work either, or what was replaced cannot be removed.
    """
    aside = directory / f"{inner.name}.aside"
    moves = [(path, aside / path.name) for path in directory.iterdir() if path != inner]
    moves += [(path, directory / path.name) for path in inner.iterdir()]
    aside.mkdir()
    done = []
    try:
        for move in moves:
            move[0].rename(move[1])
            done.append(move)
    except OSError:
        _move_back(directory, done)
        raise
    finally:
        remove_tree(aside)


def _move_back(directory: Path, done: list[tuple[Path, Path]]) -> None:
    try:
        for source, target in reversed(done):
            target.rename(source)
    except OSError as error:
        raise UnusableDirectory(
            directory, f"files of two builds are in it: {said(error)}"
        ) from error


def remove_tree(directory: Path) -> None:
    """Remove a directory that nobody may take for a part of the one it is in."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UnusableDirectory(directory, said(error)) from error


def seal(directory: Path, kind: str) -> tuple[tuple[str, Path], ...]:
    """Make a build's files read-only; return each with its path in the directory.

    Raises `BuildLeftNothing`, and `Unpublishable` for a link, socket or device:
    what they stand for is not inside.
    """
    found: list[tuple[str, Path]] = []
    for parent, directories, names in os.walk(directory):
        for name in (*names, *directories):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise Unpublishable(f"{str(path)!r} is neither a file nor a directory")
            path.chmod(0o555 if mode & stat.S_IXUSR else 0o444)
            found.append((path.relative_to(directory).as_posix(), path))
    if not found:
        raise BuildLeftNothing(kind)
    return tuple(sorted(found))


def describe(files: Iterable[tuple[str, Path]]) -> tuple[Output, ...]:
    """Read every file once and return its row of the entry.

    Raises pydantic's ValidationError, a ValueError, for names no entry may hold.
    """

    def row(file: tuple[str, Path]) -> Output:
        relative, path = file
        status = path.lstat()
        return Output(
            path=relative,
            sha256=sha256_of(path),
            size=status.st_size,
            mode="0755" if status.st_mode & stat.S_IXUSR else "0644",
        )

    with ThreadPoolExecutor(HASHING_THREADS, "artifact-cache") as pool:
        return tuple(pool.map(row, files))


def said(error: OSError) -> str:
    """Return the system's reason as it reads inside a sentence."""
    return (error.strerror or str(error)).lower()


def sealed_mode(output: Output) -> int:
    """Return the mode an output has on disk: read-only, since it may be shared."""
    return 0o555 if output.mode == "0755" else 0o444
