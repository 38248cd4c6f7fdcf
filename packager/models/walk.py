"""Walk over an untrusted directory: only plain files, only inside it."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packager.core.errors import ModelRefused
from packager.core.files.opening import Identity, identity_of, open_checked
from packager.models.paths import check_path
from packager.models.refusals import LinkLeadsOut, UnsafeLink, not_a_file, unreadable_model
from packager.models.rules import CONFIG, why_left_out

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
    identity: Identity = ()  # of the opened file, for later comparison
    is_linked: bool = False  # from elsewhere too: links come and go, and with them its change time
    fault: ModelRefused | None = None  # of a link that cannot be followed: it matters where needed

    def checked(self) -> Found:
        """Return the file where it can be read; raise why a link cannot be followed."""
        if self.fault is not None:
            raise self.fault
        return self

    def open(self) -> io.FileIO:
        """Open the file that was found; raise `SourceChanged` when another is there now."""
        return open_checked(str(self.real), self.identity, proven=self.is_linked)


def walk(root: Path, trust_roots: tuple[Path, ...] = ()) -> Iterator[Found]:
    """Yield every file below `root`. Hidden entries are yielded unopened.

    Links to files are followed as long as they stay in `link_roots` or in `trust_roots`, whose
    paths have no link; others are yielded with their fault, which counts where the file is needed.
    Links to directories are refused, so that no loop can arise, unless nothing in them is packaged.
    """
    allowed = (*link_roots(root), *trust_roots)
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
            if entry.name.startswith("."):
                yield Found(path=path, real=Path(entry.path), size=0)
            elif entry.is_symlink():
                yield _linked(Path(entry.path), path, allowed)
            elif not entry.is_dir(follow_symlinks=False):
                yield plain_file(Path(entry.path), path)
            else:
                pending.append((Path(entry.path), f"{path}/"))


def _linked(link: Path, path: str, allowed: tuple[Path, ...]) -> Found:
    """Return where a link leads; raise for a directory that may hold what is packaged."""
    try:
        return resolve_link(link, path, allowed)
    except ModelRefused as fault:
        if os.path.isdir(link) and not why_left_out(f"{path}/{CONFIG}"):  # noqa: PTH112 - a circle is none
            raise
        return Found(path=path, real=link, size=0, fault=fault)


def link_roots(root: Path) -> tuple[Path, ...]:
    """Return the directories that links below `root` may lead into.

    In the cache of huggingface-hub a snapshot consists of links to the blobs of its repository, or
    to those that all repositories share.
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
        raise unreadable_model(path, os.strerror(error.errno or 0)) from error
    if not any(real.is_relative_to(root) for root in allowed):
        raise LinkLeadsOut(path)
    if real.is_dir():
        raise UnsafeLink(path, "leads to a directory")
    return plain_file(real, path)


def plain_file(real: Path, path: str) -> Found:
    """Return the regular file at an absolute path without links; raises for anything else."""
    try:
        status = real.lstat()
    except OSError as error:
        raise unreadable_model(path, os.strerror(error.errno or 0)) from error
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise not_a_file(path, _SPECIAL.get(kind, "special file"))
    return Found(path=path, real=real, size=status.st_size, identity=identity_of(status))


def _scan(directory: Path, prefix: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise unreadable_model(
            prefix or "the model's directory", os.strerror(error.errno or 0)
        ) from error
