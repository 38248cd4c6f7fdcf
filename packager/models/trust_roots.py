"""Directories that links of a model's directory may lead into, because the user named them.

Whoever fills a model's directory chooses where its links lead: a root opens all files below it that
this process may read.  So system and home directories are refused, a root is resolved once, and
only a request file that no other user can write may name one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from packager.core.documents import shorten
from packager.core.errors import NotFound, UsageError

_OF_THE_SYSTEM = ("/boot", "/dev", "/etc", "/proc", "/run", "/sys")
_NARROWER = "name the directory of the files alone, such as the `blobs` of a download's cache"


def resolve_trust_roots(named: Iterable[str]) -> tuple[Path, ...]:
    """Return absolute paths without links; raise `NotFound` or `UsageError` for invalid roots."""
    return tuple(map(_resolve, named))


def _resolve(text: str) -> Path:
    what = f"trusted root {shorten(text)}"
    try:
        place = Path(text).expanduser()
        is_link = place.is_symlink()
        root = Path(os.path.realpath(place, strict=True))
        home = Path(os.path.realpath(Path("~").expanduser()))
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise NotFound(
            f"{what} cannot be used: {reason.lower()}", hint="name a directory that is there"
        ) from error
    if not root.is_dir():
        raise UsageError(f"{what} is not a directory", hint=_NARROWER)
    if is_link:
        raise UsageError(
            f"{what} is a link", hint=f"name the directory that it leads to: {str(root)!r}"
        )
    if home.is_relative_to(root):
        why = "the whole file system" if root == Path("/") else "a home directory"
        raise UsageError(f"{what} holds {why}", hint=_NARROWER)
    if any(root.is_relative_to(place) for place in _OF_THE_SYSTEM):
        raise UsageError(f"{what} holds files of the system", hint=_NARROWER)
    return root


def refuse_foreign_trust(request_file: Path) -> None:
    """Raise `UsageError` if another user may have written a file that names trusted roots."""
    try:
        is_own = _is_own_file(request_file.lstat(), request_file.absolute().parent.stat())
    except OSError:
        is_own = False
    if is_own:
        return
    raise UsageError(
        f"request file {shorten(str(request_file), 200)} names trusted roots, and others may have "
        "written it",
        hint="give them as --trust-root DIR; a file names them where it and its directory are "
        "yours, and only you can write to them (`chmod go-w`)",
    )


def _is_own_file(file: os.stat_result, above: os.stat_result) -> bool:
    """Return whether only root and this user can write a file, or put another in its place."""
    if not {file.st_uid, above.st_uid} <= {os.geteuid(), 0} or not stat.S_ISREG(file.st_mode):
        return False
    return not _is_open(file) and (not _is_open(above) or bool(above.st_mode & stat.S_ISVTX))


def _is_open(found: os.stat_result) -> bool:
    """Return whether others than the owner can write."""
    return bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
