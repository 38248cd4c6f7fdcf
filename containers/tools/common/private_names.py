"""Names of libraries that are no public interface, as a tool's `library.py` lists them.

A library may change what such a name does in any release, and says so nowhere.  Each is listed
with the version that it was read in and a digest of its source there; what is patched is patched
through the list.  `scripts/library-names` compares the digests with what is installed.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple


class Read(NamedTuple):
    """One name as somebody read it."""

    version: str  # of the distribution
    digest: str  # of the source
    why: str  # a worker needs it


class PrivateNames:
    """The names by module, then by path in it: `"Class.method": "VERSION DIGEST WHY"`."""

    def __init__(self, *parts: Mapping[str, Mapping[str, str]]) -> None:
        self.read = {
            (module, name): Read(*row.split(" ", 2))
            for part in parts
            for module, rows in part.items()
            for name, row in rows.items()
        }

    def changed(self) -> list[tuple[str, str]]:
        """Return the names whose source is another than the one that was read, or is gone."""
        return [at for at, row in self.read.items() if digest_of(*at) != row.digest]

    def replace(self, module: str, name: str, value: Any) -> None:
        """Set a listed name, or one of a listed class; `KeyError` for others."""
        holder, last = self._place(module, name)
        setattr(holder, last, value)

    @contextmanager
    def replaced(self, module: str, name: str, value: Any) -> Iterator[None]:
        """Set a listed name inside, and put back what it was."""
        holder, last = self._place(module, name)
        before = vars(holder)[last]
        setattr(holder, last, value)
        try:
            yield
        finally:
            setattr(holder, last, before)

    def _place(self, module: str, name: str) -> tuple[Any, str]:
        path, _, last = name.rpartition(".")
        if (module, name) not in self.read and (module, path) not in self.read:
            raise KeyError(f"{module}:{name} is not listed among the private names")
        return find(module, path), last


def find(module: str, name: str) -> Any:
    """Return what a name stands for; raise `ImportError` or `AttributeError` where it is gone."""
    found = importlib.import_module(module)
    for step in filter(None, name.split(".")):
        found = getattr(found, step)
    return found


def source_of(module: str, name: str) -> str:
    """Return the source of a name, or how its value is written; "" where it is gone."""
    try:
        found = find(module, name)
    except (ImportError, AttributeError):
        return ""
    found = found.fget if isinstance(found, property) else found
    try:
        return textwrap.dedent(inspect.getsource(found))
    except TypeError:  # a value
        return repr(found)


def digest_of(module: str, name: str) -> str:
    """Return the first digits of the SHA-256 of a name's source."""
    return hashlib.sha256(source_of(module, name).encode()).hexdigest()[:12]
