"""Walks a directory that a stranger may have filled: only plain files, only inside it."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from packager.core.values import dataclass
from packager.errors import ModelRefused
from packager.files.opening import Identity, identity_of, open_checked
from packager.models.paths import check_path
from packager.models.refusals import NotAFile, Unreadable, UnsafeLink
from packager.models.rules import why_left_out

MAX_FILES = 100_000

_SPECIAL = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One file of the directory, links resolved."""

    path: str  # relative to the directory, POSIX
    real: Path  # absolute, without a link in it
    size: int
    identity: Identity = ()  # of what is there; nothing else is read later
    is_linked: bool = False  # from elsewhere too: links come and go, and with them its change time

    def open(self) -> io.FileIO:
        """Open the file that was found; raise `SourceChanged` when another is there now."""
        return open_checked(str(self.real), self.identity, proven=self.is_linked)


def walk(root: Path) -> Iterator[Found]:
    """Yield every file below `root`. What is hidden is yielded unopened, whatever it is.

    So are links whose names alone leave them out, wherever they lead.  Other links to files are
    followed as long as they stay in `link_roots`; links to directories are refused, so that no loop
    can arise.
    """
    allowed = link_roots(root)
    pending = [(Path(os.path.realpath(root)), "")]
    count = 0
    while pending:
        directory, prefix = pending.pop()
        for entry in _scan(directory, prefix):
            path = f"{prefix}{entry.name}"
            check_path(path)
            count += 1
            if count > MAX_FILES:
                raise ModelRefused(
                    f"the directory holds more than {MAX_FILES} files",
                    hint="give the directory of one model, not one above it",
                )
            if entry.name.startswith(".") or (entry.is_symlink() and _is_left_out(entry, path)):
                yield Found(path=path, real=Path(entry.path), size=0)
            elif entry.is_symlink():
                yield resolve_link(Path(entry.path), path, allowed)
            elif not entry.is_dir(follow_symlinks=False):
                yield plain_file(Path(entry.path), path)
            else:
                pending.append((Path(entry.path), f"{path}/"))


def _is_left_out(link: os.DirEntry[str], path: str) -> bool:
    """Whether nothing that a link leads to would be packaged, by names alone."""
    within = f"{path}/config.json" if os.path.isdir(link) else path  # noqa: PTH112 - a circle is none
    return bool(why_left_out(path, in_adapter=True) and why_left_out(within, in_adapter=True))


def link_roots(root: Path) -> tuple[Path, ...]:
    """Return the directories that links below `root` may lead into.

    In the cache of huggingface-hub a snapshot is nothing but links, to the
    blobs of its repository or to those that all repositories share.
    """
    roots = [root]
    repository = root.parent.parent
    if root.parent.name == "snapshots" and repository.name.startswith("models--"):
        roots += [repository / "blobs", repository.parent / "blobs"]
    return tuple(Path(os.path.realpath(allowed)) for allowed in roots)


def resolve_link(link: Path, path: str, allowed: tuple[Path, ...]) -> Found:
    """Return the file that a link resolves to; raises where it leaves `allowed`."""
    try:
        real = Path(os.path.realpath(link, strict=True))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafeLink(path, "leads back to itself") from error
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise UnsafeLink(path, "leads nowhere") from error
        raise Unreadable(path, os.strerror(error.errno or 0)) from error
    if not any(real.is_relative_to(root) for root in allowed):
        raise UnsafeLink(path, "leads out of the model's directory")
    if real.is_dir():
        raise UnsafeLink(path, "leads to a directory")
    return plain_file(real, path)


def plain_file(real: Path, path: str) -> Found:
    """Return the regular file at an absolute path without links; raises for anything else."""
    try:
        status = real.lstat()
    except OSError as error:
        raise Unreadable(path, os.strerror(error.errno or 0)) from error
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise NotAFile(path, _SPECIAL.get(kind, "special file"))
    return Found(path=path, real=real, size=status.st_size, identity=identity_of(status))


def _scan(directory: Path, prefix: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise Unreadable(
            prefix or "the model's directory", os.strerror(error.errno or 0)
        ) from error
