"""Guesses at what a misspelt reference of a model means: directories here, published models."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from packager.core.suggestions import nearest

_PAGE = re.compile(
    r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)(?:/.*)?", re.ASCII
)
_MOST = 1000  # entries of a directory that are looked at


def similar_directory(text: str) -> str:
    """Return the existing directory whose name is most like the text's, or "".

    It is looked for where the text leads, and one level below this directory.
    """
    missing = _path(text)
    if missing is None:
        return ""
    try:
        while not missing.parent.exists():
            missing = missing.parent
    except OSError:
        return ""
    close = nearest(missing.name, _directories(missing.parent))
    if close:
        return str(missing.parent / close)
    return _below_here(Path(text.rstrip("/")).name)


def hub_id_of_page(text: str) -> str:
    """Return the hub id in the address of a model's page, or ""."""
    found = _PAGE.fullmatch(text)
    return found[1] if found else ""


def with_slashes(text: str) -> str:
    """Return a path as Windows writes it with this system's slashes, where it exists so, or ""."""
    changed = text.replace("\\", "/")
    try:
        return changed if changed != text and Path(changed).is_dir() else ""
    except (OSError, ValueError):
        return ""


def is_below_directory(text: str) -> bool:
    """Whether a name with one slash leads into a directory that is here: `examples/tiny-lama`."""
    try:
        return "/" in text and Path(text).parent.is_dir()
    except (OSError, ValueError):
        return False


def _path(text: str) -> Path | None:
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):
        return None


def _below_here(name: str) -> str:
    """Return the directory with this very name in one of the directories here, or ""."""
    for parent in _directories(Path()):
        found = Path(parent, name)
        if name and found.is_dir():
            return str(found)
    return ""


def _directories(place: Path) -> list[str]:
    """List the directories in a directory, as far as it may be read."""
    try:
        with os.scandir(place) as entries:
            return sorted(
                entry.name for entry in itertools.islice(entries, _MOST) if entry.is_dir()
            )
    except OSError:
        return []
