"""Errors of the artifact cache, converted to errors of the command line with exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from artifact_cache.errors import (
    CacheError,
    StoreUnavailable,
    Unpublishable,
    Untrusted,
    UnusableKeys,
    UnusablePin,
)
from artifact_cache.opening import BadTier
from packager.core.errors import AccessDenied, OutputFailed, PackagerError, UsageError


class CacheRefused(PackagerError):
    """A cache entry or archive is damaged or does not match its digest."""

    exit_code = 65


@contextmanager
def explained_cache_errors() -> Iterator[None]:
    """Convert errors of `artifact_cache` into `PackagerError` with a hint."""
    try:
        yield
    except CacheError as error:
        raise _kind(error)(error.message, hint=error.hint) from error


def _kind(error: CacheError) -> type[PackagerError]:
    match error:
        case BadTier() | UnusableKeys() | UnusablePin():
            return UsageError
        case Untrusted():
            return AccessDenied
        case StoreUnavailable() | Unpublishable():
            return OutputFailed
    return CacheRefused
