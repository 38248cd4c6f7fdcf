"""What can go wrong in the cache. All but the last two mean: build without it.

    CacheError
    ├── MalformedEntry     bytes that are not an entry
    ├── NewerEntry         an entry in a schema this version does not know
    ├── Corrupt            stored bytes are not what was published; already set aside
    ├── StoreUnavailable   the store cannot be read or written now
    ├── Unpublishable      a build left something an entry cannot describe
    ├── UnusableDirectory  the caller's directory is not empty, or cannot be made so
    └── BuildLeftNothing   a build returned and there is no file

Messages are lower case without a full stop; the hint is a command or a choice.
"""

from __future__ import annotations

from pathlib import Path


class CacheError(Exception):
    """Base of all explained failures: a message and what to do next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class MalformedEntry(CacheError):
    """The bytes do not hold an entry, or hold one that breaks a rule."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a cache entry: {reason}")


class NewerEntry(CacheError):
    """Left alone: the version that wrote it can still use it."""

    def __init__(self, schema: object) -> None:
        super().__init__(
            f"the entry has schema {schema!r}, which this version does not read",
            hint="upgrade, or use a cache directory per version",
        )


class Corrupt(CacheError):
    """An entry or blob was damaged, lost or swapped. It has been set aside."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} {reason}")


class StoreUnavailable(CacheError):
    """The store does not work now, or never did: the reason says which."""

    def __init__(self, store: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"the cache {store!r} cannot be used: {reason}", hint=hint)


class Unpublishable(CacheError):
    """The files are fine where they are, but no entry may describe them."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the files cannot be cached: {reason}")


class UnusableDirectory(CacheError):
    """Old and new files must never mix, so a build needs an empty place."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(
            f"files cannot go to {str(directory)!r}: {reason}",
            hint="give a new or empty directory on a disk that works",
        )


class BuildLeftNothing(CacheError):
    """An artifact without files is a failed build that did not say so."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"the build of {kind!r} returned without leaving a file")
