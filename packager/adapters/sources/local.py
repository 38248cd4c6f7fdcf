"""Models in a directory of this machine."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

from packager.adapters.sources.refusals import Incomplete, Unreadable
from packager.adapters.sources.rules import Entry
from packager.adapters.sources.take import take_model
from packager.adapters.sources.walk import Found, walk
from packager.core.model import ModelFiles, ModelRef
from packager.errors import NotFound, UsageError


class LocalSource:
    """Finds a model in a directory. Its reference says nothing about where that is.

    Of weights only headers are ever read, so `headers_only` changes nothing here.
    """

    name = "local"

    def __init__(self, *, headers_only: bool = False, is_draft: bool = False) -> None:  # noqa: ARG002
        self._is_draft = is_draft

    def facts(self, reference: str) -> ModelFiles:
        """Check the directory and read headers; nothing is copied and nothing hashed."""
        found = {file.path: file for file in walk(_directory(reference))}
        if not found:
            raise Incomplete(
                f"the directory {reference!r} is empty",
                hint="give the directory that holds the model's config.json",
            )
        listing = {path: Entry(size=file.size) for path, file in found.items()}

        def fetch(paths: tuple[str, ...]) -> Mapping[str, Found]:
            return {path: found[path] for path in paths}

        ref = ModelRef(source="local", name="model")
        return take_model(ref, listing, fetch, is_draft=self._is_draft)


def _directory(reference: str) -> Path:
    try:
        path = Path(reference).expanduser()
        root = Path(os.path.realpath(path, strict=True))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no directory {reference!r}", hint=_nearest(path)) from None
    except OSError as error:
        raise Unreadable(reference, os.strerror(error.errno or 0)) from error
    except (RuntimeError, ValueError) as error:  # no such home directory; a NUL byte
        raise UsageError(
            f"{reference!r} is not a path", hint="give a directory that holds config.json"
        ) from error
    if not root.is_dir():
        raise UsageError(
            f"{reference!r} is a file, not a model's directory",
            hint=f"give the directory that holds it: {str(path.parent)!r}",
        )
    return root


def _nearest(path: Path) -> str:
    """Name the sibling that the user may have meant."""
    missing = path
    while not missing.parent.exists():
        missing = missing.parent
    try:
        siblings = sorted(entry.name for entry in missing.parent.iterdir() if entry.is_dir())
    except OSError:
        siblings = []
    close = difflib.get_close_matches(missing.name, siblings, n=1)
    if close:
        return f"did you mean {str(missing.parent / close[0])!r}?"
    return "give a directory that holds config.json, or a hub id `org/name`"
