"""Models in a directory of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from packager.core.errors import NotFound, UsageError
from packager.core.model import ModelFiles, ModelRef
from packager.core.references import DirectoryReference, ModelReference
from packager.models.load import load_model
from packager.models.naming import name_of_directory
from packager.models.reference import directory_of, is_hub_id
from packager.models.refusals import Incomplete, unreadable_model
from packager.models.rules import ListedModelFile
from packager.models.suggestions import similar_directory, with_slashes
from packager.models.walk import Found, walk


class LocalSource:
    """Finds a model in a directory. Its reference has its name, and not where it is.

    Of weights only headers are ever read.  Links may lead into `trust_roots`, too.
    """

    name = "local"

    def __init__(
        self,
        *,
        is_draft: bool = False,
        is_adapter: bool = False,
        is_linked: bool = False,
        trust_roots: tuple[Path, ...] = (),
    ) -> None:
        self._is_draft = is_draft
        self._is_adapter = is_adapter
        self._trust_roots = trust_roots
        self._is_linked = is_linked  # the files are those of cache entries, which others link too

    def facts(self, reference: ModelReference) -> ModelFiles:
        """Check the directory and read headers, without copying or hashing."""
        directory = directory_of(reference).path
        walked = walk(_directory(directory), self._trust_roots)
        found = {file.path: replace(file, is_linked=self._is_linked) for file in walked}
        if not found:
            raise Incomplete(
                f"the directory {directory!r} is empty",
                hint="give the directory that holds the model's config.json",
            )
        listing = {path: ListedModelFile(size=file.size) for path, file in found.items()}

        def fetch(paths: tuple[str, ...]) -> Mapping[str, Found]:
            return {path: found[path].checked() for path in paths}

        ref = ModelRef(source="local", name=_name(directory))
        return load_model(ref, listing, fetch, is_draft=self._is_draft, is_adapter=self._is_adapter)


def _name(reference: str) -> str:
    """Return the model's name, whatever way leads to its directory: links have none."""
    return name_of_directory(Path(os.path.realpath(Path(reference).expanduser())))


def refuse_missing_directory(reference: ModelReference) -> None:
    """Raise `NotFound` for a directory that is not there, before anything else is tried."""
    if isinstance(reference, DirectoryReference):
        _directory(reference.path)


def _directory(reference: str) -> Path:
    try:
        path = Path(reference).expanduser()
        root = Path(os.path.realpath(path, strict=True))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no directory {reference!r}", hint=_otherwise(reference)) from None
    except OSError as error:
        raise unreadable_model(reference, os.strerror(error.errno or 0)) from error
    except RuntimeError as error:
        raise NotFound(
            f"there is no directory {reference!r}: no such user has a home here",
            hint="give a directory that holds config.json, with its whole path",
        ) from error
    except ValueError as error:  # a NUL byte
        raise UsageError(
            f"{reference!r} is not a path", hint="give a directory that holds config.json"
        ) from error
    if not root.is_dir():
        raise UsageError(
            f"{reference!r} is a file, not a model's directory",
            hint=f"give the directory that holds it: {str(path.parent)!r}",
        )
    return root


def _otherwise(reference: str) -> str:
    """Return what else the reference may mean."""
    close = with_slashes(reference) or similar_directory(reference)
    hint = f"did you mean {close!r}?" if close else "give a directory that holds config.json"
    pinned = f"{reference}@main"
    if is_hub_id(reference):
        return f"{hint} a model of a hub is meant by its revision here: {pinned!r}"
    return hint if close else f"{hint}, or a hub id `org/name`"
