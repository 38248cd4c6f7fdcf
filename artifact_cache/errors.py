"""Errors of the cache.

    CacheError
    │   the cache cannot help; build without it
    ├── MalformedEntry     bytes that are not an entry
    ├── NewerEntry         an entry in a schema that this version does not know
    ├── Corrupt            stored bytes differ from what was published; quarantined already
    ├── Untrusted          no trusted key signed the entry
    ├── StoreUnavailable   the store cannot be read or written now
    ├── NotTaken           an artifact is missing or unreadable, and nothing may be built
    ├── Unpublishable      a build left files that an entry cannot describe
    │   the build cannot go on
    ├── UnusableDirectory  the caller's directory is not empty, or cannot be made so
    ├── BuildLeftNothing   a build returned without any file
    ├── BuildFailed        raised by a build whose log is to be kept
    │   └── Rejected       raised by a build that can never work with these inputs
    │       └── RejectedBefore  it was rejected recently, and was not tried again
    │   the user has to decide
    ├── UnusableKeys       a file of keys cannot be read or is invalid
    └── UnusablePin        a pin cannot be read or is empty, so nothing may be collected

Messages are lower case without a full stop; the hint is a command or a choice.
"""

from __future__ import annotations

from pathlib import Path


class CacheError(Exception):
    """Base of all explained failures: a message and what to do next."""

    tier = ""  # the store it came from, where there are several

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


class Untrusted(CacheError):
    """The entry is unsigned, or its signature is wrong or by a stranger. Nothing of it was used."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(
            f"entry {key[:12]} is refused: {reason}",
            hint="add the builder's public key to the trusted keys if you know where it came from",
        )


class StoreUnavailable(CacheError):
    """The store does not work now, or never did: the reason says which."""

    def __init__(self, store: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"the cache {store!r} cannot be used: {reason}", hint=hint)


class NotTaken(CacheError):
    """Nothing could be taken; the reason says what was found instead."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


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


class BuildFailed(CacheError):
    """Raised by a build: it failed this time, and `log` says why. The log is kept, not the fact."""

    def __init__(self, reason: str, *, log: str = "", hint: str = "") -> None:
        super().__init__(reason, hint=hint)
        self.log = log


class Rejected(BuildFailed):
    """Raised by a build: the tool itself said that these inputs are wrong. That is remembered.

    Never for what another attempt may get past: memory, time-outs, signals,
    networks, full disks.
    """


class RejectedBefore(Rejected):
    """The same inputs were rejected a while ago; nothing was run."""

    def __init__(self, reason: str, *, log: str, since: str, until: str) -> None:
        super().__init__(
            f"these inputs were rejected on {since}: {reason}",
            log=log,
            hint=f"change an input, or retry what has failed; it is forgotten on {until}",
        )


class PublishedElsewhere(Exception):
    """Raised by a build: another machine did it, and its entry is in a store of this cache."""


class UnusableKeys(CacheError):
    """Without the keys that were asked for nothing can be checked or signed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"the keys in {str(path)!r} cannot be used: {reason}",
            hint="give a file made by the key generator, or one that lists trusted keys",
        )


class UnusablePin(CacheError):
    """A pin that cannot be read or says nothing. Collecting would lose what it holds."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"the pin {name!r} cannot be used: {reason}",
            hint="pin its entries again under this name, or remove it, then collect",
        )
